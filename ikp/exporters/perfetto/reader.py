"""Rebuilds the trace from a file that :mod:`ikp.exporters.perfetto.writer` wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from ikp.core.trace import Trace
from ikp.errors import ExportError
from ikp.exporters.perfetto import evidence
from ikp.exporters.perfetto.contents import Contents
from ikp.exporters.perfetto.rebuild import rebuild_events, rebuild_slots, rebuild_totals
from ikp.exporters.perfetto.schema import READABLE, Packet
from ikp.exporters.perfetto.split import DamagedError, Data, Ints, padded, split, whole


def read(path: str | PathLike[str]) -> Trace:
    """Read a whole trace.

    Raises:
        ExportError: the file can't be read, is damaged, or was not written by ``ikp``.
    """
    content = _bytes(path)
    try:
        return _trace(_contents(path, content))
    except DamagedError as error:
        raise _damaged(path, error) from error


def read_head(path: str | PathLike[str]) -> Contents:
    """Read a file up to its first events: launches, blocks, but no ranges.

    Raises:
        ForeignError: it is a Perfetto trace, of somebody else or of a layout that isn't known.
        ExportError: the file can't be read, or is damaged.
    """
    content = _bytes(path)
    try:
        return _contents(path, content, head=True)
    except DamagedError as error:
        raise _damaged(path, error) from error


class ForeignError(ExportError):
    """The file may be a good Perfetto trace, but not one that this reader knows."""


def _damaged(path: str | PathLike[str], error: DamagedError) -> ExportError:
    return ExportError(
        f"{path} is not a whole Perfetto trace: {error}. Either it was cut short or changed "
        "(write or copy it again), or it is a file of another kind."
    )


def _bytes(path: str | PathLike[str]) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ExportError(f"{path} can't be read: {error.strerror or error}.") from error
    if not content:
        raise ExportError(f"{path} is empty: writing it failed, or has not begun.")
    return content


def _contents(path: str | PathLike[str], content: bytes, *, head: bool = False) -> Contents:
    contents = Contents()
    for data, starts, sizes in _packets(content):
        begin = 0
        if contents.summary is None:
            begin = HEAD_PACKETS
            _read_head(path, contents, data, starts[:begin], sizes[:begin])
        contents.add(data, starts[begin:], sizes[begin:])
        if head and contents.events:
            break
    return contents


def _read_head(
    path: str | PathLike[str], contents: Contents, data: Data, starts: Ints, sizes: Ints
) -> None:
    with contextlib.suppress(DamagedError):  # what is not ours may have any packets here
        contents.add(data, starts, sizes)
    if contents.summary is None:
        raise ForeignError(
            f"{path} is a Perfetto trace, but ikp did not write it, so it lacks what ikp needs to "
            "know of launches and blocks. Open it at https://ui.perfetto.dev."
        )
    written = contents.summary.get("format")
    if written not in READABLE:
        known = " and ".join(map(str, READABLE))
        raise ForeignError(
            f"{path} has version {written} of ikp's layout; this ikp reads versions {known}. "
            "Read it with the version of ikp that wrote it."
        )


def _packets(content: bytes) -> Iterator[tuple[Data, Ints, Ints]]:
    """Yield the file's packets, those packed together at once: bytes, starts and sizes."""
    data = padded(content)
    starts, sizes = whole(data, 0, len(content), Packet.PACKET)
    blobs = split(data, starts, sizes).numbered(Packet.COMPRESSED_PACKETS)
    begin = 0
    for row, start, size in zip(
        blobs.message.tolist(), blobs.start.tolist(), blobs.size.tolist(), strict=True
    ):
        if begin < row:
            yield data, starts[begin:row], sizes[begin:row]
        begin = row + 1
        inflated = _inflate(content[start : start + size])
        inner = padded(inflated)
        yield inner, *whole(inner, 0, len(inflated), Packet.PACKET)
    if begin < len(starts):
        yield data, starts[begin:], sizes[begin:]


def _inflate(packed: bytes) -> bytes:
    from isal import isal_zlib

    try:
        return bytes(isal_zlib.decompress(packed, 15))
    except isal_zlib.error as error:
        raise DamagedError("a compressed part is damaged") from error


def _trace(contents: Contents) -> Trace:
    summary = contents.summary
    if summary is None:
        raise DamagedError("it holds no packets")
    slots, track, block = rebuild_slots(contents, evidence.size(summary, "slots"))
    args = evidence.to_args(summary)
    regions = evidence.to_regions(summary)
    count = evidence.size(summary, "events")
    events, own = rebuild_events(contents, count, len(regions), track, block, args)
    totals = rebuild_totals(contents, evidence.size(summary, "totals"), track, block)
    roles = evidence.to_roles(summary)
    launches = evidence.size(summary, "launches")
    if sorted(contents.launches) != list(range(1, launches + 1)):
        raise DamagedError(f"it holds {len(contents.launches)} of {launches} launches")
    tables = (
        (slots.launch, launches),
        (slots.role, len(roles)),
        (events.region, len(regions)),
        (totals.region, len(regions)),
    )
    for rows, count in tables:
        if len(rows) and not 0 <= rows.min() <= rows.max() < count:
            raise DamagedError(
                "a slot, event or total names a launch, role or region that is missing"
            )
    return Trace(
        launches=tuple(
            evidence.to_launch(contents.launches[pid]) for pid in range(1, launches + 1)
        ),
        regions=regions,
        slots=slots,
        events=events,
        provenance=summary.get("provenance", {}),
        roles=roles,
        args=own,
        totals=totals,
    )


HEAD_PACKETS = 5
"""Names, clock, the first track, the summary's, the summary: what our files begin with."""
