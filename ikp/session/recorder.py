"""What one opening of a session has handed out, and what came back in it."""

from __future__ import annotations

import platform
import sys
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from operator import methodcaller
from typing import Any

import numpy as np

from ikp import registry
from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import Source
from ikp.core.regions import merge
from ikp.core.segment import EVERYTHING, WORDS_AT, Segment, Selection, Tensor
from ikp.core.trace import Trace
from ikp.errors import DecodeError, FaultError
from ikp.progress import progress
from ikp.session.current import Opening, closed
from ikp.session.faults import failures, fault, lost
from ikp.session.harvest import Harvest, Taken, hand_out
from ikp.session.memory import Arena, Room, zero
from ikp.session.readback import read_back, waited
from ikp.session.streams import beside, on
from ikp.session.wishes import Wishes, device_facts
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
    rank: int | None = None  # of this process now


class Recording:
    """The segments of one opening of a session. Any thread may take one."""

    def __init__(self, opening: Opening, wishes: Wishes) -> None:
        self.opening = opening
        self.wishes = wishes
        self.unheard: list[str] = []  # which buffers nobody wrote to, as of the last reading
        self._lock = threading.Lock()
        self._taken: list[Taken] = []
        self._arenas: dict[Any, Arena] = {}
        self._harvests: dict[Any, Harvest] = {}

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
        wishes, chosen = self.wishes, asked.selection
        settled = wishes.settle(asked.backend, asked.device, chosen)
        device, spec = settled.device, settled.spec
        name, rate = device_facts(device)
        alike = asked.label, str(asked.room.grid), asked.room.num_warps, chosen
        with self._lock:
            harvest = self._harvests.setdefault(device, Harvest(device))
            harvest.step()
            made = harvest.records(alike)
            nbytes = asked.room.nbytes(spec, chosen, device, wishes.buffer_size, made)
            arena = self._arenas.setdefault(device, Arena(device))
        segment = Segment(
            label=asked.label,
            data=arena.take(nbytes),
            spec=spec,
            backend=settled.name,
            device_name=name,
            clock_rate_hz=rate,
            regions=asked.regions,
            selection=chosen,
            enabled=asked.enabled,
            rank=asked.rank,
        )
        if spec.select:
            _write_selection(segment.data, chosen)
        handed = hand_out(segment.data, segment.label, self.opening if asked.enabled else None)
        prof = settled.backend.argument(replace(segment, data=handed))
        if prof is not None:  # else the language has said why
            taken = Taken(segment, weakref.ref(handed), handed.ikp_notice, launch=alike)
            with self._lock:
                self._taken.append(taken)
                harvest.add(taken)
        return prof

    def forget(self, handed: Tensor) -> None:
        """Leave out the segment whose kernel never ran."""
        with self._lock:
            self._taken = [each for each in self._taken if each.handed() is not handed]
            for harvest in self._harvests.values():
                harvest.forget(lambda each: each.handed() is not handed)

    def empty(self) -> None:
        """Wait for all kernels, and make what they recorded unsaid: buffers still held go on.

        Those that nobody holds any more can't be launched again; their memory is given back.
        """
        with self._lock:
            wait(self.segments)  # of all: a kernel outlives what its launch was handed
            self._taken = [each for each in self._taken if each.handed() is not None]
            for harvest in self._harvests.values():
                harvest.forget(lambda each: each.handed() is not None)
            for each in self._taken:
                each.heard |= written(each.segment)
                zero(each.segment.data)
                if each.segment.spec.select:
                    _write_selection(each.segment.data, each.segment.selection)
            wait(self.segments)

    def read(self, facts: Mapping[str, str]) -> tuple[Trace, DecodeError | FaultError | None]:
        """Wait for all kernels and decode what is sound of what they wrote.

        Args:
            facts: what the trace should say of its making.

        Returns:
            The trace, and what is wrong with the rest.
        """
        began = time.perf_counter()
        every = tuple(self._taken)
        failed = failures({each.segment.data.device for each in every if each.segment.data.is_cuda})
        gone = lost(every, failed)
        left_out = set(gone)
        taken = [each for each in every if each not in left_out]
        reading = _Reading(taken)
        made = {**provenance(self.segments), **facts}
        broken = fault(gone, len(every), failed, facts) if failed else None
        if broken is not None:
            made["fault"] = str(broken)
        names = merge(map(methodcaller("names"), tuple(self.wishes.backends.values())))
        with progress(len(taken), "Decoding") as told:
            trace = decode(reading, names, made, told)
        self.unheard = [_not_heard(reading.silent)] if reading.silent else []
        copied = reading.seconds
        costs = {
            "copied_out_s": f"{copied:.4f}",
            "decoded_s": f"{time.perf_counter() - began - copied:.4f}",
        }
        trace = replace(trace, provenance={**trace.provenance, **costs})
        return trace, broken or reading.broken


_BYTES_AT_ONCE = 1 << 30
_AT_ONCE = 256
"""Launches read back together, so that waiting for a copy is shared by many."""


class _Reading:
    """Reads segments back as a decoder comes to them, and leaves out what can't be decoded."""

    def __init__(self, taken: Sequence[Taken]) -> None:
        self._taken = taken
        self.broken: DecodeError | None = None
        self.silent: set[str] = set()  # labels of buffers that no kernel wrote to
        self.seconds = 0.0  # that reading took

    def __iter__(self) -> Iterator[Source]:
        for some in _groups(self._taken):
            began = time.perf_counter()
            sources = _sources(some)
            self.seconds += time.perf_counter() - began
            for each, source in zip(some, sources, strict=True):
                try:
                    launched = source.layout is not None
                except DecodeError as error:
                    self.broken = error
                    continue
                if each.segment.enabled and not launched and not each.heard:
                    self.silent.add(source.label)
                yield source


def _groups(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """Yield segments in their order, so many together as may be copied out at once."""
    group: list[Taken] = []
    nbytes = 0
    for each in taken:
        nbytes += each.segment.nbytes
        if group and (len(group) == _AT_ONCE or nbytes > _BYTES_AT_ONCE):
            yield group
            group, nbytes = [], each.segment.nbytes
        group.append(each)
    if group:
        yield group


def _sources(taken: Sequence[Taken]) -> Iterator[Source]:
    """Return what segments hold, in their order; those of GPUs are copied out, by device."""
    copied: dict[int, Source] = {}
    there: dict[Any, list[tuple[int, Segment]]] = {}
    # First: another thread may be giving memory back, and reading it.
    held = [replace(each.segment, data=each.segment.data) for each in taken]
    for each, segment in zip(taken, held, strict=True):
        if each.source is None and segment.data.is_cuda:
            there.setdefault(segment.data.device, []).append((id(each), segment))
    for some in there.values():
        keys, segments = zip(*some, strict=True)
        copied.update(zip(keys, waited(read_back(segments)), strict=True))
    return (
        each.source or copied.pop(id(each), None) or Source.of(segment, segment.data.numpy())
        for each, segment in zip(taken, held, strict=True)
    )


def _not_heard(labels: Collection[str]) -> str:
    return (
        f"nothing was recorded for {', '.join(map(repr, sorted(labels)))}: the kernel never ran, "
        "or it has no ikp.init(prof) with this buffer."
    )


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
    from importlib.metadata import PackageNotFoundError

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
            facts[package] = _version(package)
        except PackageNotFoundError:
            continue
    return facts


@cache
def _version(package: str) -> str:
    """Return a package's version, which takes half a millisecond to find and each session asks."""
    from importlib.metadata import version

    return version(package)


def _write_selection(data: Tensor, selection: Selection) -> None:
    """Write which warps and blocks record to the launch header, before any kernel reads it.

    On a stream of ikp's own: the user's may have work for long, and the next launch is not to wait.
    """
    import torch

    words = torch.from_numpy(selection.words().view(np.uint8))
    stream = beside(data.device)
    with on(stream):
        data[WORDS_AT : WORDS_AT + len(words)].copy_(words)
    if stream is not None:
        stream.synchronize()


def gpus_of(segments: list[Segment]) -> set[str]:
    """Return the GPUs on which the segments lie."""
    return {str(segment.data.device) for segment in segments if segment.data.is_cuda}


def wait(segments: list[Segment]) -> None:
    """Wait for everything queued on the segments' devices."""
    for device in {segment.data.device for segment in segments if segment.data.is_cuda}:
        import torch

        torch.cuda.synchronize(device)


def written(segment: Segment) -> bool:
    """Return whether a kernel has begun to record into the segment."""
    header = segment.data[:WORDS_AT].cpu().numpy()
    return bool(header.any())
