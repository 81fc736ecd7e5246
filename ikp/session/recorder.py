"""What one opening of a session has handed out, and what came back in it."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import Source, read_launch_header
from ikp.core.segment import Segment
from ikp.core.trace import Trace
from ikp.errors import DecodeError
from ikp.profiling.deduction import without_overhead
from ikp.session.current import Opening
from ikp.session.device import read_back, wait, write_selection, written
from ikp.session.handed import hand_out
from ikp.session.memory import Arena
from ikp.session.provenance import provenance
from ikp.session.wishes import Wishes


@dataclass(slots=True, eq=False)
class _Taken:
    """A segment, and the tensor that a kernel was handed for it, as long as somebody holds that.

    ``heard`` tells that a kernel has written to it before it was emptied.
    """

    segment: Segment
    handed: Callable[[], Any]
    heard: bool = False


class Recording:
    """The segments of one opening of a session. Any thread may take one."""

    def __init__(self, opening: Opening, wishes: Wishes) -> None:
        self.opening = opening
        self.trace: Trace | None = None  # as of the last time it was read
        self._wishes = wishes
        self._silent: set[str] = set()  # labels of buffers that nobody wrote to
        self._undeducted = ""  # why overhead could not be deducted
        self._lock = threading.Lock()
        self._taken: list[_Taken] = []
        self._arenas: dict[Any, Arena] = {}

    @property
    def segments(self) -> list[Segment]:
        """The segments handed out so far, in order."""
        return [taken.segment for taken in self._taken]

    def take(self, device: Any, nbytes: Any, describe: Callable[[Any], Segment]) -> Segment:
        """Return a segment of zeroed memory, as a kernel may have it.

        Args:
            device: the torch device that it is to be on.
            nbytes: its size.
            describe: returns the segment that lies in given memory.

        Raises:
            UsageError: the size can't be that of a segment.
            BufferError: the device has too little memory left.
        """
        with self._lock:
            arena = self._arenas.setdefault(device, Arena(device))
            segment = describe(arena.take(nbytes))
            if segment.spec.select:
                write_selection(segment.data, segment.selection)
            handed = hand_out(segment.data, segment.label, self.opening, recording=segment.enabled)
            self._taken.append(_Taken(segment, weakref.ref(handed)))
            self.trace = None
        return replace(segment, data=handed)

    def forget(self, handed: Any) -> None:
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
            self.trace = None

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
        names = self._wishes.names()
        copied = time.perf_counter()
        trace = decode(sources, names, {**provenance(self.segments), **facts})
        costs = {
            "copied_out_s": f"{copied - began:.4f}",
            "decoded_s": f"{time.perf_counter() - copied:.4f}",
        }
        trace = replace(trace, provenance={**trace.provenance, **costs})
        if self._wishes.deduct:
            trace, self._undeducted = without_overhead(trace, self._wishes, self.segments)
        self.trace = trace
        return trace, broken

    def losses(self, *, ended: bool) -> list[str]:
        """Say what was lost. Kernels that a failure kept from running are not missed."""
        launches = self.trace.launches if self.trace else ()
        texts = [f"{each.label}: {'; '.join(each.notes)}." for each in launches if each.notes]
        if self._undeducted:
            texts.append(self._undeducted)
        if ended and self._silent:
            labels = ", ".join(map(repr, sorted(self._silent)))
            texts.append(
                f"nothing was recorded for {labels}: the kernel never ran, or it has no "
                "ikp.init(prof) with this buffer."
            )
        return texts

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
