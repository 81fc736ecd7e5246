"""Rebuilds the trace from the packets of a file that was written before there were columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import PathLike

import numpy as np

from ikp.core.trace import Trace, faults
from ikp.exporters.columns.small_tables import args_of, provenance_of, to_launch
from ikp.exporters.perfetto import _evidence as evidence
from ikp.exporters.perfetto._inflate import PIECE, Budget, inflated
from ikp.exporters.perfetto._rebuild import rebuild_rows, rebuild_slots, together
from ikp.exporters.perfetto._refusals import ForeignError, another_version
from ikp.exporters.perfetto._schema import COLUMNAR, READABLE, Facts, Packet
from ikp.exporters.perfetto.contents import Contents
from ikp.exporters.perfetto.head import Head
from ikp.exporters.protobuf.damage import DamagedError
from ikp.exporters.protobuf.split import Data, Ints, fitting, padded, split, whole


def read(path: str | PathLike[str], content: bytes) -> Trace:
    """Read a whole trace from what is in a file.

    Raises:
        ExportError: it inflates to too much, or was not written by ``ikp``.
        DamagedError: it is not whole.
    """
    return _trace(_contents(path, content))


def read_head(path: str | PathLike[str], content: bytes) -> Head:
    """Read a file up to its first events: launches, blocks, but no ranges.

    Raises:
        ForeignError: it is a Perfetto trace, of somebody else or of a layout that isn't known.
        ExportError: it inflates to too much.
        DamagedError: it is not whole.
    """
    contents = _contents(path, content, head=True)
    names = ("launch", "track", "block", "sm", "start_ns", "end_ns")
    rows = together(contents.blocks, names)
    base = contents.base_ns or 0
    for name in ("start_ns", "end_ns"):
        rows[name] = rows[name] + base
    launches = [contents.launches[key] for key in sorted(contents.launches)]
    columns = [rows[name] for name in names]
    return Head(tuple(map(to_launch, launches)), len(columns[0]), *columns)


def _contents(path: str | PathLike[str], content: bytes, *, head: bool = False) -> Contents:
    budget = Budget(path, len(content))
    contents = Contents()
    contents.tracks.most = _MOST_TRACKS + _TRACKS_PER_BYTE * len(content)
    own = 0
    for data, starts, sizes in _packets(content, budget):
        begin = 0
        if contents.summary is None:
            begin = _HEAD_PACKETS
            summary = _read_head(path, contents, data, starts[:begin], sizes[:begin])
            own = len(args_of(summary))
        budget.take(_ARG_BYTES * own * len(starts))
        contents.add(data, starts[begin:], sizes[begin:])
        if head and contents.events:
            break
    return contents


def _read_head(
    path: str | PathLike[str], contents: Contents, data: Data, starts: Ints, sizes: Ints
) -> Facts:
    with contextlib.suppress(DamagedError):  # what is not ours may have any packets here
        contents.add(data, starts, sizes)
    if contents.summary is None:
        raise ForeignError(
            f"{path} is a Perfetto trace, but ikp did not write it, so it lacks what ikp needs to "
            "know of launches and blocks. Open it at https://ui.perfetto.dev."
        )
    written = contents.summary.get("format")
    if written in COLUMNAR:
        raise DamagedError("what it begins with is missing")
    if written not in READABLE:
        raise another_version(path, written)
    return contents.summary


def _packets(content: bytes, budget: Budget) -> Iterator[tuple[Data, Ints, Ints]]:
    """Yield the file's packets, many at once, packed or not: bytes, starts and sizes."""
    data = padded(content)
    starts, sizes = whole(data, 0, len(content), Packet.PACKET)
    for rows in _parts(starts):
        blobs = split(data, starts[rows], sizes[rows]).numbered(Packet.COMPRESSED_PACKETS)
        begin = rows.start
        for row, start, size in zip(
            (rows.start + blobs.message).tolist(),
            blobs.start.tolist(),
            blobs.size.tolist(),
            strict=True,
        ):
            if begin < row:
                yield data, starts[begin:row], sizes[begin:row]
            begin = row + 1
            yield from _packed(content[start : start + size], budget)
        if begin < rows.stop:
            yield data, starts[begin : rows.stop], sizes[begin : rows.stop]


def _parts(starts: Ints) -> Iterator[slice]:
    """Yield the rows of packets that lie in about as many bytes as are taken apart together."""
    low = 0
    while low < len(starts):
        high = int(np.searchsorted(starts, starts[low] + PIECE))
        high = max(high, min(low + _HEAD_PACKETS, len(starts)))
        yield slice(low, high)
        low = high


def _packed(packed: bytes, budget: Budget) -> Iterator[tuple[Data, Ints, Ints]]:
    """Yield the packets of one packed part; those that the file begins with, together."""
    rest = b""
    for piece in inflated(packed, budget):
        rest += piece
        data = padded(rest)
        starts, sizes, end = fitting(data, 0, len(rest), Packet.PACKET)
        if len(starts) >= _HEAD_PACKETS:
            yield data, starts, sizes
            rest = rest[end:]
    if rest:
        data = padded(rest)
        yield data, *whole(data, 0, len(rest), Packet.PACKET)


def _trace(contents: Contents) -> Trace:
    summary = contents.summary
    if summary is None:
        raise DamagedError("it holds no packets")
    slots, track, block = rebuild_slots(contents, evidence.size(summary, "slots"))
    rows = rebuild_rows(contents, summary, track, block)
    roles = evidence.to_roles(summary)
    launches = evidence.size(summary, "launches")
    there = len(contents.launches)
    if there != launches or not all(pid in contents.launches for pid in range(1, there + 1)):
        raise DamagedError(f"it holds {there} of {launches} launches")
    trace = Trace(
        launches=tuple(to_launch(contents.launches[pid]) for pid in range(1, launches + 1)),
        regions=evidence.to_regions(summary),
        slots=slots,
        provenance=provenance_of(summary),
        roles=roles,
        **rows,
    )
    if wrong := faults(trace):
        raise DamagedError("; ".join(wrong))
    return trace


_HEAD_PACKETS = 5
"""Names, clock, the first track, the summary's, the summary: what our files begin with."""
_ARG_BYTES = 9
"""What each event takes in memory for each argument, given or not."""
_MOST_TRACKS = 1 << 20
_TRACKS_PER_BYTE = 4
"""Ids of tracks index a table, so a damaged file must not ask for an endless one. They count from
at most twice their number, and a track takes more than half a byte of a file."""
