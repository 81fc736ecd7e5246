"""A host with a backend and an exporter of the tests' own: no kernel language, no file format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ikp import registry
from ikp.core.segment import Segment as Buffer
from ikp.core.trace import Trace
from ikp.errors import ExportError
from ikp.session import wishes
from tests.segments import Launch, Record, Segment, Truth, Warp


def work(records: int = 3, regions: tuple[int, ...] = (1, 2, 3), **options: Any) -> Launch:
    """Return a launch of two warps."""
    steps = [Record(100 * i, 100 * i + 10, regions[i % len(regions)]) for i in range(records)]
    return Launch({(0, 0): Warp(steps), (1, 0): Warp(steps[:1])}, grid=(2, 1, 1), **options)


class ModelBackend:
    """Hands kernels the segment itself; a test then writes to it what a kernel would."""

    interface = registry.INTERFACE

    def __init__(self) -> None:
        self.known: dict[int, str] = {}

    def device_type(self) -> str:
        return "cpu"

    def argument(self, segment: Buffer) -> Buffer:
        return segment

    def names(self) -> dict[int, str]:
        return self.known


class LinesExporter:
    """One line per launch."""

    interface = registry.INTERFACE
    suffixes = (".lines",)

    def write(self, trace: Trace, path: str | PathLike[str], *, force: bool = False) -> None:
        if Path(path).exists() and not force:
            raise ExportError(f"{path} appeared meanwhile")
        Path(path).write_text(lines(trace), encoding="utf-8")


def lines(trace: Trace) -> str:
    return "".join(f"{launch.label} {launch.kept}\n" for launch in trace.launches)


@dataclass
class Host:
    """What the tests' backend and exporter are doing."""

    backend: ModelBackend = field(default_factory=ModelBackend)
    exporter: LinesExporter = field(default_factory=LinesExporter)

    def run(self, buffer: Any, launch: Launch) -> Truth:
        """Write to a buffer what a launch would; return the truth."""
        model = Segment(buffer.nbytes)
        truth = model.run(launch)
        buffer.data.numpy()[:] = np.frombuffer(model.data, np.uint8)
        return truth


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Install the tests' backend, as the built-in one, and exporter."""
    pytest.importorskip("torch")
    host = Host()
    own: dict[tuple[str, str], Any] = {
        (registry.BACKENDS, "model"): host.backend,
        (registry.EXPORTERS, "lines"): host.exporter,
    }
    load: Callable[[str, str], Any] = registry.load
    names: Callable[[str], list[str]] = registry.names
    monkeypatch.setattr(registry, "load", lambda *key: own.get(key) or load(*key))
    monkeypatch.setattr(
        registry, "names", lambda group: [n for g, n in own if g == group] + names(group)
    )
    monkeypatch.setattr(wishes, "_installed_backend", lambda: "model")
    monkeypatch.delenv("IKP", raising=False)
    return host
