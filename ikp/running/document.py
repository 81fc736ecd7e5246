"""The JSON of ``ikp run``: its processes, kernels by time, verdict, next commands and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypedDict

from ikp.analysis.explain.verdict import Verdict
from ikp.json_schema import headed
from ikp.running.answer import Answer, Command, Kernel
from ikp.running.process_parts import Part

VERSION: Final = 1


class RunJson(TypedDict):
    """The JSON of ``ikp run``, without the head. ``lines`` are warnings and what went wrong."""

    processes: list[Part]
    kernels: list[Kernel]
    untimed: list[str]
    verdict: Verdict | None
    explained: str | None
    not_explained: str
    next: list[Command]
    lines: list[str]


def document(parts: Sequence[Part], answer: Answer, lines: Sequence[str]) -> dict[str, Any]:
    """Return the JSON of a run."""
    verdict = None if answer.verdict is None else answer.verdict.to_dict()
    if verdict is not None:
        del verdict["schema"]  # it is a part of this document
    found = asdict(answer) | {"verdict": verdict}
    processes = [asdict(each) for each in parts]
    return headed("run", VERSION, {"processes": processes, **found, "lines": list(lines)})


def beside(path: str) -> Path:
    """Return the path of a run's JSON: ``x.run.json`` beside ``x.pftrace``."""
    return Path(path).with_suffix(".run.json")
