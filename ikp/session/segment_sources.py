"""Sources of a session's segments: copied back in groups, and read until each header is whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import Segment
from ikp.errors import DecodeError
from ikp.session.device import Device, device_of, torch_of_program
from ikp.session.harvest import Taken
from ikp.session.lifting import copies_of
from ikp.session.service import service_of

_BYTES_AT_ONCE = 1 << 30
_SETTLES_S = 0.25
"""For so long, launch headers that can't be decoded are read again."""
_AT_ONCE = 256
"""Launches read back together, so that waiting for a copy is shared by many."""


class SourceReader:
    """An iterator over segments' sources, read back as a decoder takes them; keeps the last error.

    Segments that can't be decoded are left out.
    """

    def __init__(
        self,
        taken: Sequence[Taken],
        last: bool,
        sources: Callable[[Sequence[Taken]], Iterator[SegmentSource]],
    ) -> None:
        self._taken, self._last, self._sources = taken, last, sources
        self.broken: DecodeError | None = None
        self._silent: set[str] = set()  # labels of buffers that no kernel wrote to
        self.seconds = 0.0  # that reading took
        self._until = 0.0  # when no launch header is read again; 0 before the first that is wrong

    @property
    def unheard(self) -> list[str]:
        """A message on the buffers that no kernel wrote to; none where there is no such buffer."""
        if not self._silent:
            return []
        labels = ", ".join(map(repr, sorted(self._silent)))
        why = "the kernel never ran, or it has no ikp.init(prof) with this buffer."
        return [f"nothing was recorded for {labels}: {why}"]

    def __iter__(self) -> Iterator[SegmentSource]:
        for some in _groups(self._taken):
            began = time.perf_counter()
            sources = self._sources(some)
            self.seconds += time.perf_counter() - began
            for each, source in zip(some, sources, strict=True):
                settled, error = self._settled(each, source)
                if self._last:
                    each.lifted = None
                if error is not None:
                    self.broken = error
                    continue
                launched = settled.layout is not None
                if each.segment.enabled and not launched and not each.heard:
                    self._silent.add(settled.label)
                yield settled

    def _settled(
        self, each: Taken, source: SegmentSource
    ) -> tuple[SegmentSource, DecodeError | None]:
        """Return a source whose launch header is whole, or the error of a header that stays wrong.

        Another thread may launch after the wait for kernels. A copy can then hold the half of the
        header that its kernel has written.
        """
        while True:
            try:
                _ = source.layout
            except DecodeError as error:
                wrong = error
            else:
                return source, None
            now = time.monotonic()
            self._until = self._until or now + _SETTLES_S
            if each.lifted is not None or now >= self._until:
                return source, wrong
            time.sleep(_SETTLES_S / 100)
            (source,) = self._sources([each])


def _groups(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """Yield segments in their order, in groups that may be copied out at once."""
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


def sources_of(taken: Sequence[Taken]) -> Iterator[SegmentSource]:
    """Return the sources of segments, in their order; those on GPUs are copied out, by device."""
    copied: dict[int, SegmentSource] = {}
    there: dict[Device, list[tuple[int, Segment]]] = {}
    for each in taken:
        segment = each.segment
        if not is_here(each):
            there.setdefault(device_of(segment.data.device), []).append((id(each), segment))
    for device, some in there.items():
        keys, segments = zip(*some, strict=True)
        copied.update(zip(keys, _copied(device, segments), strict=True))
    return (copied.pop(id(each)) if id(each) in copied else source_of(each) for each in taken)


def _copied(device: Device, segments: Sequence[Segment]) -> list[SegmentSource]:
    """Copy segments of one GPU: by kernels of torch, which select records, where there is torch."""
    if torch_of_program() is not None:
        from ikp.session.readback import read_back, waited  # with torch alone

        return waited(read_back(segments))
    service = service_of(device)
    return [
        copy.source(segment)
        for segment, copy in zip(
            segments, service.call(partial(copies_of, service.storage, segments)), strict=True
        )
    ]


def is_here(taken: Taken) -> bool:
    """Return whether no copy from a device is needed, but for what a drain copies by itself."""
    read = taken.lifted is not None or taken.drain is not None
    return read or not taken.segment.data.is_cuda


def source_of(taken: Taken) -> SegmentSource:
    """Return the source of a segment on the host, or of one that was read back."""
    if taken.lifted is not None:
        return taken.lifted.source(taken.segment)
    if taken.drain is not None:
        return taken.drain.source()
    return SegmentSource.of(taken.segment, taken.segment.data.numpy())
