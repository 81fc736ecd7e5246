"""A segment as a GEMM kernel leaves it: 8 warps per block, two ranges per iteration and one around.

Written by numpy straight into the layout of the ABI, so that tens of millions of ranges take
seconds. All on the clock of the SM that each block ran on; the timer steps by 32 ns.
"""

from __future__ import annotations

import numpy as np

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, Language, OverflowMode, PayloadType, SlotState
from ikp.core.decoding.launch_header import SegmentSource

WARPS, SMS = 8, 132
HZ = 1.98e9
EPOCH_NS = 1_760_000_000_000_000_000
NAMES = {1: "load", 2: "dot", 3: "tile"}


def gemm_segment(blocks: int, iterations: int, seed: int = 0) -> SegmentSource:
    """Return what ``blocks`` blocks wrote: ``(2 * iterations + 1) * 8`` ranges each.

    Half of the ranges have a payload. A range's start, end and tag are 4 bytes each, as on a GPU.
    """
    slots, records = blocks * WARPS, 2 * iterations + 1
    random = np.random.default_rng(seed)
    data = np.zeros(abi.segment_bytes(slots, records), np.uint8)
    _launch_header(data, blocks, records)
    rows = data[abi.LAUNCH_HEADER_BYTES :].reshape(slots, -1)
    heads = rows[:, : abi.SLOT_HEADER_BYTES].view(abi.SLOT_HEADER)[:, 0]
    body = rows[:, abi.SLOT_HEADER_BYTES :].view(abi.RECORD)
    block = np.arange(slots) // WARPS
    sm = block % SMS
    origin = random.integers(1 << 33, 1 << 34, SMS)[sm]  # where each SM's counter started
    wave = block // SMS * (iterations * 1200 + 4000)
    begin = origin + wave + random.integers(0, 400, slots)
    end = begin + 200 + _records(body, begin + 100, iterations, random)
    heads["init_clock"], heads["finish_clock"] = begin, end
    heads["init_ns"], heads["finish_ns"] = _timer(begin - origin), _timer(end - origin)
    heads["sm"], heads["grid_id"], heads["state"] = sm, 7, SlotState.FINISHED
    heads["attempted"] = records
    return SegmentSource("gemm", data, device="NVIDIA H200", clock_rate_hz=HZ, regions=NAMES)


def _records(
    body: np.ndarray, begin: np.ndarray, iterations: int, random: np.random.Generator
) -> np.ndarray:
    """Fill in the records of all slots; return how long each slot took, in cycles."""
    shape = (len(body), iterations)
    load = random.normal(80, 12, shape).clip(16).astype(np.int64)
    dot = random.normal(900, 60, shape).clip(200).astype(np.int64)
    gap = random.integers(8, 30, shape)
    step = load + dot + 2 * gap
    start = begin[:, None] + np.cumsum(step, 1) - step
    second = start + load + gap
    ends = (start + load, second + dot)
    payload = np.arange(iterations)
    for offset, (region, kind, first, last) in enumerate(
        ((1, PayloadType.U32, start, ends[0]), (2, PayloadType.NONE, second, ends[1]))
    ):
        part = body[:, offset:-1:2]
        part["tag"] = abi.tag(Kind.RANGE, kind, region)
        part["start"], part["end"] = first.astype(np.uint32), last.astype(np.uint32)
        part["payload"] = payload if kind else 0
    around = body[:, -1]
    around["tag"] = abi.tag(Kind.RANGE, PayloadType.NONE, 3)
    around["start"] = (begin - 10).astype(np.uint32)
    around["end"] = (ends[1][:, -1] + 10).astype(np.uint32)
    return ends[1][:, -1] + 10 - begin


def _launch_header(data: np.ndarray, blocks: int, records: int) -> None:
    header = data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)
    header["magic"], header["abi"] = abi.MAGIC, abi.ABI_VERSION
    header["grid"], header["block"] = (blocks, 1, 1), (32 * WARPS, 1, 1)
    header["warps_per_block"] = WARPS
    header["slot_bytes"] = abi.SLOT_HEADER_BYTES + records * abi.RECORD_BYTES
    header["clock"], header["overflow"] = ClockKind.CYCLES, OverflowMode.STOP
    header["grid_id"], header["launches"], header["language"] = 7, 1, Language.TRITON


def _timer(cycles: np.ndarray) -> np.ndarray:
    ns = EPOCH_NS + (cycles * (1e9 / HZ)).astype(np.int64)
    return ns - ns % 32
