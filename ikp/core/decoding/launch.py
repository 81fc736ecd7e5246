"""The launch header of a segment: whether it is one, and what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Language, Option, OverflowMode
from ikp.core.selection import EVERYTHING, MAX_WARPS, WORDS_AT, Selection
from ikp.errors import DecodeError


@dataclass(frozen=True, slots=True)
class Source:
    """One segment's bytes and what the host knows of it."""

    label: str
    data: NDArray[np.uint8]
    device: str = "unknown device"
    backend: str = "unknown"
    clock_rate_hz: float = 0.0
    regions: Mapping[int, str] | None = None  # names of user-given ids, for this launch
    selected: bool = False  # the host chose which warps and blocks record
    totals: bool = False  # the host asked for totals
    rank: int | None = None  # of the process that launched the kernel


def is_summed(header: Any, source: Source, notes: list[str]) -> bool:
    """Return whether the kernel kept totals; tell where it did not heed the wish."""
    summed = _has(header, Option.TOTALS)
    if source.totals and not summed:
        notes.append(
            "a timeline was recorded: the code that this kernel was compiled from can't keep totals"
        )
    return summed


def selection_of(header: Any, source: Source, notes: list[str]) -> Selection:
    """Return which warps and blocks have slots; tell where the kernel did not heed the choice."""
    asked = Selection.of(header)
    if _has(header, Option.SELECTED):
        return asked
    if source.selected:
        notes.append(
            "every warp recorded: the code that this kernel was compiled from can't choose warps "
            "or blocks"
        )
    return EVERYTHING


def capacity_of(header: Any, overflow: OverflowMode, clock: ClockKind) -> int:
    """Return how many records a slot can get: those it holds, or those staged for it."""
    slot_bytes = int(header["slot_bytes"])
    if _has(header, Option.STAGED):
        slot_bytes = min(slot_bytes, abi.SLOT_HEADER_BYTES + int(header["stage_bytes"]))
    return abi.slot_capacity(slot_bytes, overflow, clock)


def _has(header: Any, option: Option) -> bool:
    return bool(int(header["options"]) & option)


def read_launch_header(data: NDArray[np.uint8], label: str) -> Any:
    """Return the launch header of a segment, checked; None if no kernel wrote one.

    Raises:
        DecodeError: it is not a launch header of this ABI, or contradicts the segment's size.
    """
    where = f"the segment {label!r} ({len(data)} bytes)"
    if len(data) < abi.LAUNCH_HEADER_BYTES:
        raise DecodeError(
            f"{where} is truncated: a segment starts with a header of {abi.LAUNCH_HEADER_BYTES} "
            "bytes."
        )
    header = np.ascontiguousarray(data[: abi.LAUNCH_HEADER_BYTES]).view(abi.LAUNCH_HEADER)[0]
    if not data[:WORDS_AT].any():  # behind, the host has written which warps and blocks record
        return None
    if int(header["magic"]) != abi.MAGIC:
        raise DecodeError(
            f"{where} was not written by ikp: it starts with {int(header['magic']):#010x}, not "
            f"{abi.MAGIC:#010x}. Did the kernel, or another one, write to it as if it were its own?"
        )
    if int(header["abi"]) != abi.ABI_VERSION:
        raise DecodeError(
            f"{where} has record ABI {int(header['abi'])}, this ikp reads ABI {abi.ABI_VERSION}: "
            "the kernel was compiled by another ikp version. Clear the DSL's compile cache and run "
            "again."
        )
    _check_launch(header, len(data), where)
    return header


def _check_launch(header: Any, size: int, where: str) -> None:
    grid, block = (np.asarray(header[k], np.float64) for k in ("grid", "block"))
    blocks = math.prod(triple(header["grid"]))
    warps, slot_bytes = int(header["warps_per_block"]), int(header["slot_bytes"])
    threads = float(np.prod(block))
    lanes = 64 if _has(header, Option.LANES64) else 32
    possible = not _has(header, Option.SELECTED) or int(header["block_step"]) > 0
    problems = [
        (int(header["options"]) & ~sum(Option) != 0, f"options {int(header['options']):#x}"),
        (not possible, "every 0th block"),
        (min(grid.min(), block.min()) < 1, f"an empty grid {grid} or block {block}"),
        (threads > 1024 or warps != -(-threads // lanes), f"{warps} warps for {threads:g} threads"),
        (
            possible and slot_bytes != _slot_bytes(size, *_slots(header, blocks, warps)),
            f"slots of {slot_bytes} bytes for {np.prod(grid):g} blocks of {warps} warps",
        ),
        (int(header["clock"]) not in list(ClockKind), f"clock {int(header['clock'])}"),
        (int(header["overflow"]) not in list(OverflowMode), f"mode {int(header['overflow'])}"),
    ]
    wrong = [text for found, text in problems if found]
    if wrong:
        raise DecodeError(
            f"{where} has a corrupt launch header: it claims {'; '.join(wrong)}. Something else "
            f"wrote to this memory after the kernel started."
        )


def _slots(header: Any, blocks: int, warps: int) -> tuple[int, int]:
    """Return how many blocks, and warps of each, a kernel divides its segment among."""
    if not _has(header, Option.SELECTED):
        return blocks, warps
    chosen = Selection.of(header)
    return chosen.count_blocks(blocks), len(chosen.chosen_warps(min(warps, MAX_WARPS)))


def _slot_bytes(size: int, blocks: int, warps: int) -> int:
    """Return what a kernel makes of a segment of ``size`` bytes."""
    return (size - abi.LAUNCH_HEADER_BYTES) // (max(1, blocks) * max(1, warps)) & -abi.ALIGNMENT


def language_of(header: Any, source: Source) -> str:
    """Return what the kernel says it was written in, else the backend that made the buffer."""
    language = int(header["language"])
    known = language in list(Language) and language != Language.OTHER
    return Language(language).name.lower() if known else source.backend


def triple(values: Any) -> tuple[int, int, int]:
    """Return x, y and z as Python integers."""
    x, y, z = (int(v) for v in values)
    return x, y, z
