"""``Grid``: a launch's warps on each SM, and blocks on all, by bins of time; and matrices as PNG.

A PNG picture has one colour: each pixel is as opaque as its share in a matrix says.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.lane_time import Blocks, lane_time
from ikp.core.abi import Kind
from ikp.core.warps import Seen, all_warps, seen_warps

if TYPE_CHECKING:
    from ikp.core.trace import Trace


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS: Final = 240
"""Bins of a launch's time."""


@dataclass(frozen=True, slots=True)
class Grid:
    """One launch over its SMs: ``warps`` is how many ran, on average, SMs x bins.

    ``recorded`` has the same of the warps that recorded, and ``regions``, by name, of those in a
    range of that name. ``seen`` says how many blocks and warps are counted.
    """

    sms: list[int]
    duration_ns: int
    warps: Floats
    recorded: Floats
    blocks: Floats  # of all SMs, in each bin
    regions: dict[str, Floats]
    seen: Seen
    waves: float | None  # as a verdict has them; None where blocks are not known
    on_gpu: bool  # an interpreter has no SMs

    @property
    def named_sms(self) -> str:
        """The SMs in words: rows are of these alone, whose numbers may have gaps."""
        if not self.on_gpu:
            return "the interpreter's blocks, one after another"
        first, last = self.sms[0], self.sms[-1]
        if len(self.sms) == 1:
            return f"SM {first}"
        if last - first + 1 == len(self.sms):
            return f"SM {first} to {last}"
        return f"{len(self.sms):,} SMs from {first} to {last}"


def grid_of(trace: Trace, launch: int, regions: list[str]) -> Grid:
    """Return the grid of one launch, of all its warps whose times are known: at least one."""
    every, place = all_warps(trace)
    mine = np.flatnonzero(every.launch == launch)
    start, end = every.start_ns[mine], every.end_ns[mine]
    begin = int(start.min())
    duration = max(1, int(end.max()) - begin)
    sms, row = np.unique(every.sm[mine], return_inverse=True)

    def covered(rows: Ints, first: Ints, last: Ints, count: int) -> Floats:
        scale = np.float64(BINS / duration)
        return coverage(rows, (first - begin) * scale, (last - begin) * scale, count)

    ran = Blocks.of(every.block[mine], start, np.maximum(start, end), every.sm[mine])
    blocks = covered(np.zeros(len(ran.ids), np.int64), ran.start, ran.end, 1)
    row_of_warp = np.full(len(every), -1)
    row_of_warp[mine] = row
    row_of_slot = row_of_warp[place]
    events = trace.events
    found = {}
    for name in regions:
        numbers = [i for i, one in enumerate(trace.regions) if one.name == name]
        chosen = np.isin(events.region, numbers) & (events.kind == Kind.RANGE)
        chosen &= row_of_slot[events.slot] >= 0
        place = row_of_slot[events.slot[chosen]]
        spans = events.start_ns[chosen], events.end_ns[chosen]
        found[name] = covered(place, *spans, len(sms))
    warps = covered(row, start, end, len(sms))
    slots, chosen = trace.slots, row_of_slot >= 0
    spans = slots.start_ns[chosen], slots.end_ns[chosen]
    recorded = covered(row_of_slot[chosen], *spans, len(sms)) if len(trace.others) else warps
    seen = seen_warps(trace.launches, every)[launch]
    lanes = lane_time(ran.sm, ran.start - begin, ran.end - begin, duration)
    on_gpu = trace.launches[launch].clock.kind != "host"
    waves = len(ran.ids) / lanes.count if seen.every_block and on_gpu else None
    return Grid(sms.tolist(), duration, warps, recorded, blocks[0], found, seen, waves, on_gpu)


def coverage(row: Ints, start: Floats, end: Floats, rows: int, bins: int = BINS) -> Floats:
    """Return how many intervals cover each bin of each row, on average; times are in bins."""
    wide = bins + 1
    size = rows * wide

    def up_to(at: Floats) -> tuple[Ints, Floats]:
        """Return, for intervals from 0 to ``at``, how many end in each bin, and their parts."""
        at = np.clip(at, 0, bins)
        whole = np.floor(at).astype(np.int64)
        place = row * wide + whole
        ends = np.bincount(place, minlength=size)
        parts: Floats = np.asarray(np.bincount(place, weights=at - whole, minlength=size), float)
        return ends.reshape(rows, wide), parts.reshape(rows, wide)

    (ends, last), (begins, first) = up_to(np.maximum(start, end)), up_to(start)
    passing = np.cumsum((ends - begins)[:, ::-1], axis=1)[:, ::-1] - (ends - begins)
    return np.asarray((passing + last - first)[:, :bins])


Shades = NDArray[np.uint8]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_PALETTE: Final = 3
COLOUR: Final = (0x3B, 0x7D, 0xEE)
"""The colour of all pixels: visible on white and on black."""


def shades(shares: NDArray[np.float64]) -> Shades:
    """Return shares of 0 to 1 as 0 to 255."""
    return np.asarray(np.rint(255 * np.clip(shares, 0, 1)), np.uint8)


def png(alpha: Shades) -> bytes:
    """Return a picture of one colour that is as opaque as each value says, a pixel each."""
    height, width = alpha.shape
    pixels = np.zeros((height, 1 + width), np.uint8)  # each line begins with its filter: none
    pixels[:, 1:] = alpha
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, _PALETTE, 0, 0, 0),
        b"PLTE": bytes(COLOUR) * 256,
        b"tRNS": bytes(range(256)),
        b"IDAT": zlib.compress(pixels.tobytes(), 9),
        b"IEND": b"",
    }
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks.items())


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def as_address(picture: bytes) -> str:
    """Return a ``data:`` address that holds the picture itself."""
    return f"data:image/png;base64,{b64encode(picture).decode()}"
