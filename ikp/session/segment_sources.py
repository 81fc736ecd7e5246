"""Sources of a session's segments: waits for the kernels that record into them, then copies in
groups.

A wait may have a limit. The error of a failed GPU stays: from then on, the device's memory can't be
read. Segments keep their labels on the host, in the order in which they were launched, so the lost
ones can be named. Others are read until each header is whole.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import WORDS_AT, Segment, SegmentRows
from ikp.driver import devices
from ikp.errors import DecodeError, FaultError, PatchError
from ikp.session.device import Device, device_of, torch_of_program
from ikp.session.harvest import Taken
from ikp.session.lifting import copies_of
from ikp.session.service import service_of
from ikp.session.storage import drives_cuda

_GOES_ON = (
    "A warp goes on after a store that fails, and may finish: look at the ranges that ended last, "
    "too, not at open ones alone."
)
_SHOWN = 3
"""Most labels that the error names of launches that may have failed."""


def gpus_of(segments: list[Segment]) -> set[str]:
    """Return the GPUs on which the segments lie."""
    return set(map(str, _gpus_of(segments)))


def _gpus_of(segments: Sequence[Segment]) -> set[Device]:
    return {device_of(segment.data.device) for segment in segments if segment.data.is_cuda}


def wait(segments: list[Segment]) -> None:
    """Wait for everything queued on the segments' devices.

    Raises:
        RuntimeError: a kernel has failed.
    """
    for device in _gpus_of(segments):
        _synchronize(device)


def _synchronize(device: Device) -> None:
    """Wait for everything queued on a GPU.

    Raises:
        RuntimeError: a kernel has failed.
    """
    if not drives_cuda():
        import torch

        torch.cuda.synchronize(str(device))
    elif failed := devices.failure(device.index or 0):
        raise RuntimeError(failed)


def wait_for(segments: list[Segment], patience_s: float | None) -> bool:
    """Wait for everything queued on the segments' devices, at most so long; return if it is done.

    Raises:
        RuntimeError: a kernel has failed.
    """
    if patience_s is None:
        wait(segments)
        return True
    return ends_within(patience_s, partial(wait, segments))


def ends_within(patience_s: float, wait: Callable[[], None]) -> bool:
    """Have a thread of its own wait for kernels; return whether it is done within so long.

    Raises:
        RuntimeError: no thread starts: Python ends (3.12).
        Exception: ``wait`` raises it.
    """
    failed: list[Exception] = []

    def waited_for() -> None:
        try:
            wait()
        except Exception as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=waited_for, name="ikp: waits for kernels", daemon=True)
    thread.start()
    thread.join(patience_s)
    if failed:
        raise failed.pop()  # in the list, it and this frame would hold each other
    return not thread.is_alive()


def ended_or_failed(
    segments: list[Segment], patience_s: float | None
) -> tuple[bool, dict[Device, str]]:
    """Wait as ``wait_for`` does; return whether all kernels ended, and errors of failed GPUs."""
    try:
        ended = wait_for(segments, patience_s)
    except (PatchError, RuntimeError):
        ended = True
    return ended, failures(_gpus_of(segments)) if ended else {}


def written(segment: Segment) -> bool:
    """Return whether a kernel has begun to record into the segment."""
    service = service_of(segment.data.device)
    read = partial(service.storage.read, segment.data, SegmentRows(0, WORDS_AT))
    return bool(service.call(read).any())


def failures(gpus: Collection[Device]) -> dict[Device, str]:
    """Wait for everything queued on GPUs; return the error of each one that has failed."""
    found: dict[Device, str] = {}
    for device in gpus:
        try:
            _synchronize(device)
        except (PatchError, RuntimeError) as error:
            found[device] = next(iter(str(error).splitlines()), type(error).__name__)
    return found


def lost(taken: Sequence[Taken], failed: Mapping[Device, str]) -> list[Taken]:
    """Return the segments whose memory can't be read any more."""
    return [
        each
        for each in taken
        if each.lifted is None
        and each.drain is None  # what it has read is on the host
        and each.segment.data.is_cuda
        and device_of(each.segment.data.device) in failed
    ]


def streams(taken: Sequence[Taken], failed: Mapping[Device, str]) -> list[str]:
    """Return the labels of streams that had not ended: what was read while they ran is there."""
    return [
        each.segment.label
        for each in taken
        if each.lifted is None
        and each.drain is not None
        and device_of(each.segment.data.device) in failed
    ]


def fault(
    gone: Sequence[Taken],
    launches: int,
    failed: Mapping[Device, str],
    facts: Mapping[str, str],
    running: Sequence[str] = (),
) -> FaultError:
    """Return the error of a failed GPU: what was read back, what is lost, and what to try.

    Args:
        gone: the segments that are lost, in order.
        launches: how many were recorded in all.
        failed: errors, by device.
        facts: of the session: how kernels were recorded.
        running: labels of streams that had not ended.
    """
    errors = "; ".join(f"{device}: {error}" for device, error in failed.items())
    read = launches - len(gone)
    kept = f"{read} of {launches} recorded launches had been read back, and are in the trace"
    if running:
        kept += f" ({running[-1]} as far as it was read while it ran)"
    text = f"a kernel failed on the GPU ({errors}). Before that, {kept}"
    after = f" {_GOES_ON}" if running else ""
    if not gone:
        return FaultError(f"{text}: none is lost.{after}")
    last = gone[-1].segment.label
    how = facts.get(f"marks in {last}", "")
    recorded = f" ({how.splitlines()[-1]})" if how else ""
    return FaultError(
        f"{text}; {len(gone)} {'are' if len(gone) > 1 else 'is'} lost. The last recorded launch "
        f"was {last}{recorded}{_others(gone, last)}. To see whether records are the cause, run "
        "again with --check, or choose other kernels with --kernel; IKP=0 records nothing." + after
    )


def _others(gone: Sequence[Taken], last: str) -> str:
    """Name the other kernels that are not known to have ended, the latest first."""
    counts = Counter(each.segment.label for each in reversed(gone))
    names = [f"{label} ({count})" for label, count in counts.items() if label != last]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; not known to have ended: {', '.join(names[:_SHOWN])}{more}" if names else ""


_BYTES_AT_ONCE = 1 << 30
_SETTLES_S = 0.25
"""For so long, launch headers that can't be decoded are read again."""
_AT_ONCE = 256
"""Launches read back together, so that waiting for a copy is shared by many."""


class SourceReader:
    """An iterator over segments' sources, read back as a decoder takes them; keeps the last error.

    Segments that can't be decoded are left out.

    Args:
        taken: the segments.
        last: free the bytes read back as they are decoded.
        sources: reads some of them back.
        most: warps that are decoded in all, as decoding takes a second for a million. Further
            launches are left out, but for the first of each label; None leaves none out.
    """

    def __init__(
        self,
        taken: Sequence[Taken],
        last: bool,
        sources: Callable[[Sequence[Taken]], Iterator[SegmentSource]],
        most: int | None = None,
    ) -> None:
        self._taken, self._last, self._sources, self._most = taken, last, sources, most
        self._warps, self._labels = 0, set[str]()
        self._beyond = Counter[str]()
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

    @property
    def beyond(self) -> list[str]:
        """A message on the launches of each label that were left out as too many."""
        return [
            f"{label}: the trace leaves out {count} recorded launch{'es' * (count > 1)}: with them "
            f"it would have more than {self._most:,} warps, which take minutes to read. Choose "
            "launches (--launch, --replays) or blocks (--blocks)."
            for label, count in self._beyond.items()
        ]

    def _is_beyond(self, source: SegmentSource) -> bool:
        """Count a launch's warps; return whether they are too many."""
        layout = source.layout
        if self._most is None or layout is None:
            return False
        warps = layout.slots + layout.others
        if source.label in self._labels and self._warps + warps > self._most:
            self._beyond[source.label] += 1
            return True
        self._labels.add(source.label)
        self._warps += warps
        return False

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
                if self._is_beyond(settled):
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
