"""What one opening of a session has handed out, and what came back in it."""

from __future__ import annotations

import platform
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ikp import registry
from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import Source, read_launch_header
from ikp.core.segment import EVERYTHING, Segment, Selection, Tensor
from ikp.core.trace import Trace
from ikp.errors import DecodeError
from ikp.session._handed import hand_out
from ikp.session.current import Opening, closed
from ikp.session.device import device_facts, read_back, wait, write_selection, written
from ikp.session.memory import Arena, Room
from ikp.session.ranks import current_rank
from ikp.session.wishes import Wishes
from ikp.version import __version__


@dataclass(frozen=True, slots=True)
class Asked:
    """What a launch's buffer is to be: the arguments of ``prof.buffer``, checked."""

    label: str
    regions: Mapping[int, str] = field(default_factory=dict)
    selection: Selection = EVERYTHING
    room: Room = Room()  # noqa: RUF009 - it can't change
    device: Any = None
    backend: str | None = None
    enabled: bool = True


@dataclass(slots=True, eq=False)
class _Taken:
    """A segment, and the tensor that a kernel was handed for it, as long as somebody holds that.

    ``heard`` tells that a kernel has written to it before it was emptied.
    """

    segment: Segment
    handed: Callable[[], Tensor | None]
    heard: bool = False


class Recording:
    """The segments of one opening of a session. Any thread may take one."""

    def __init__(self, opening: Opening, wishes: Wishes) -> None:
        self.opening = opening
        self.wishes = wishes
        self._silent: set[str] = set()  # labels of buffers that nobody wrote to
        self._lock = threading.Lock()
        self._taken: list[_Taken] = []
        self._arenas: dict[Any, Arena] = {}

    @property
    def segments(self) -> list[Segment]:
        """The segments handed out so far, in order."""
        return [taken.segment for taken in self._taken]

    def buffer(self, asked: Asked) -> Any:
        """Return what a kernel takes as its ``prof``; None where its language can't record.

        Raises:
            UsageError: what is asked for can't be had.
            BufferError: no memory, no GPU, or a CUDA graph is being captured.
            PluginError: the backend can't be loaded.
        """
        wishes, selection = self.wishes, asked.selection
        backend = wishes.chosen_backend(asked.backend)
        device = wishes.device(asked.device, backend)
        spec = wishes.spec(device, selection)
        name, rate = device_facts(device)

        def described(data: Tensor) -> Segment:
            return Segment(
                label=asked.label,
                data=data,
                spec=spec,
                backend=backend,
                device_name=name,
                clock_rate_hz=rate,
                regions=asked.regions,
                selection=selection,
                enabled=asked.enabled,
                rank=current_rank(),
            )

        nbytes = wishes.size(spec, device, selection, asked.room)
        segment = self._take(device, nbytes, described)
        prof = wishes.backend(backend).argument(segment)
        if prof is None:  # the language has said why
            self.forget(segment.data)
        return prof

    def _take(self, device: Any, nbytes: Any, describe: Callable[[Tensor], Segment]) -> Segment:
        """Return a segment of zeroed memory, as a kernel may have it."""
        with self._lock:
            arena = self._arenas.setdefault(device, Arena(device))
            segment = describe(arena.take(nbytes))
            if segment.spec.select:
                write_selection(segment.data, segment.selection)
            handed = hand_out(segment.data, segment.label, self.opening, recording=segment.enabled)
            self._taken.append(_Taken(segment, weakref.ref(handed)))
        return replace(segment, data=handed)

    def forget(self, handed: Tensor) -> None:
        """Leave out the segment whose kernel never ran."""
        with self._lock:
            self._taken = [each for each in self._taken if each.handed() is not handed]

    def empty(self) -> None:
        """Wait for all kernels, and make what they recorded unsaid: buffers still held go on.

        Those that nobody holds any more can't be launched again; their memory is given back.
        """
        with self._lock:
            wait(self.segments)  # of all: a kernel outlives what its launch was handed
            self._taken = [each for each in self._taken if each.handed() is not None]
            for each in self._taken:
                each.heard |= written(each.segment)
                each.segment.data.zero_()
                if each.segment.spec.select:
                    write_selection(each.segment.data, each.segment.selection)
            wait(self.segments)

    def release(self) -> None:
        """Give the memory back: what was recorded in it has been read."""
        with self._lock:
            self._taken.clear()
            self._arenas.clear()

    def read(self, facts: Mapping[str, str]) -> tuple[Trace, DecodeError | None]:
        """Wait for all kernels and decode what is sound of what they wrote.

        Args:
            facts: what the trace should say of its making.

        Returns:
            The trace, and what is wrong with the rest.
        """
        began = time.perf_counter()
        sources, broken = self._sources()
        names = self.wishes.names()
        copied = time.perf_counter()
        trace = decode(sources, names, {**provenance(self.segments), **facts})
        costs = {
            "copied_out_s": f"{copied - began:.4f}",
            "decoded_s": f"{time.perf_counter() - copied:.4f}",
        }
        return replace(trace, provenance={**trace.provenance, **costs}), broken

    def unheard(self) -> list[str]:
        """Say which buffers no kernel wrote to, as of the last time they were read."""
        labels = ", ".join(map(repr, sorted(self._silent)))
        text = (
            f"nothing was recorded for {labels}: the kernel never ran, or it has no "
            "ikp.init(prof) with this buffer."
        )
        return [text] if labels else []

    def _sources(self) -> tuple[list[Source], DecodeError | None]:
        taken, sources, broken = tuple(self._taken), [], None
        self._silent = set()
        wait([each.segment for each in taken])
        for each in taken:
            source = read_back(each.segment)
            try:
                launched = read_launch_header(source) is not None
            except DecodeError as error:
                broken = error
                continue
            sources.append(source)
            if each.segment.enabled and not launched and not each.heard:
                self._silent.add(source.label)
        return sources, broken


@contextmanager
def recording(wishes: Wishes) -> Iterator[Recording]:
    """Open a session that no launch finds: who has it takes its buffers."""
    opening = Opening(None)
    try:
        yield Recording(opening, wishes)
    finally:
        closed(opening)


def provenance(segments: list[Segment]) -> dict[str, str]:
    """Return what recorded the segments: program, host, devices and versions."""
    from importlib.metadata import PackageNotFoundError, version

    facts = {
        "ikp": __version__,
        "abi": str(abi.ABI_VERSION),
        "python": platform.python_version(),
        "host": platform.platform(),
        "command": " ".join(sys.argv)[:1000],
        "recorded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "devices": ", ".join(sorted({segment.device_name for segment in segments})),
    }
    for package in (*registry.distributions(), "torch"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts
