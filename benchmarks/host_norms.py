"""Segments as norms and activations leave them: very many warps of few ranges each.

Of patched machine code: short headers side by side, the records of four warps in rows. Each warp
has a range of its whole life and, on request, short ones in it, one after another.
"""

from __future__ import annotations

import numpy as np
from host_segment import EPOCH_NS, HZ, SMS

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, Language, Option, OverflowMode, PayloadType
from ikp.core.decoding.launch_header import SegmentSource

WARPS, RESIDENT = 4, 16
"""Warps of a block, and blocks that an SM holds at the same time."""
NAMES = {1: "load", 2: "math", 3: "store", 4: "wait", 9: "kernel"}
_LIFE, _BEFORE = 5000, 300


def norm_segment(blocks: int, ranges: int, number: int = 0) -> SegmentSource:
    """Return what ``blocks`` blocks wrote: ``ranges`` ranges per warp and the whole one.

    ``number`` is that of the launch; each begins when the one before it is over.
    """
    slots = blocks * WARPS
    random = np.random.default_rng(number)
    data = np.zeros(
        abi.segment_bytes(slots, max(1, ranges), header_bytes=abi.DENSE_HEADER_BYTES), np.uint8
    )
    records = max(1, ranges)
    _launch_header(data, blocks, records, number + 1)
    heads = data[abi.LAUNCH_HEADER_BYTES :][: slots * abi.DENSE_HEADER_BYTES].view(abi.DENSE_HEADER)
    block = np.arange(slots) // WARPS
    sm, place = block % SMS, block // SMS % RESIDENT
    turn = block // (SMS * RESIDENT)
    origin = np.random.default_rng(7).integers(1 << 33, 1 << 34, SMS)[sm]
    waves = blocks // (SMS * RESIDENT) + 1
    wave = (number * (waves + 4) + turn) * (_LIFE + 400) + place * (_LIFE // RESIDENT)
    begin = origin + wave + random.integers(0, 200, slots)
    life = random.integers(_LIFE - 400, _LIFE, slots)
    end = begin + life
    if ranges:
        at = abi.LAUNCH_HEADER_BYTES + slots * abi.DENSE_HEADER_BYTES
        rows = data[at:].view(abi.RECORD).reshape(blocks, records, WARPS)
        step = (_LIFE - 400 - _BEFORE) // ranges
        for i in range(ranges):
            part = rows[:, i]
            first = (begin + _BEFORE + i * step + random.integers(0, 20, slots)).reshape(blocks, -1)
            took = random.integers(step // 2, step - 20, slots).reshape(blocks, -1)
            part["tag"] = abi.tag(Kind.RANGE, PayloadType.NONE, 1 + i % 4)
            part["start"], part["end"] = first & 0xFFFFFFFF, (first + took) & 0xFFFFFFFF
    for name, when in (("init", begin), ("finish", end)):
        ns = EPOCH_NS + ((when - origin) * (1e9 / HZ)).astype(np.int64)
        mask = 0xFFFFFFFF if name == "init" else -1
        heads[f"{name}_ns"], heads[f"{name}_clock"] = (ns - ns % 32) & mask, when & mask
    heads["attempted"], heads["sm"], heads["grid_id"] = ranges, sm, number + 1
    return SegmentSource(
        "norm", data, device="NVIDIA H200", backend="machine", clock_rate_hz=HZ, regions=NAMES
    )


def _launch_header(data: np.ndarray, blocks: int, records: int, grid_id: int) -> None:
    header = data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)
    header["magic"], header["abi"] = abi.MAGIC, abi.ABI_VERSION
    header["grid"], header["block"] = (blocks, 1, 1), (32 * WARPS, 1, 1)
    header["warps_per_block"] = WARPS
    header["slot_bytes"] = abi.DENSE_HEADER_BYTES + records * abi.RECORD_BYTES
    header["clock"], header["overflow"] = ClockKind.CYCLES, OverflowMode.STOP
    header["grid_id"], header["launches"], header["language"] = grid_id, 1, Language.TRITON
    header["options"], header["together"], header["whole"] = Option.DENSE, WARPS, 9
