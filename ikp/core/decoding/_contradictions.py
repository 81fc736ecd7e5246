"""Validation of a launch header: magic, ABI, and fields that contradict each other or the host."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ikp.core import abi
from ikp.core.abi import ClockKind, Option, OverflowMode
from ikp.core.decoding.dense import are_rows
from ikp.core.segment import EVERYTHING, MAX_WARPS, WORDS, Selection


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The host's knowledge of a segment that reading its launch header needs."""

    nbytes: int
    backend: str
    selected: bool
    totals: bool
    selection: Selection | None
    clock: ClockKind | None
    overflow: OverflowMode | None


def taken_of(header: np.void, asked: HostFacts) -> Selection:
    """Return the selection that holds: the host's own where it is known, for no kernel changes it.

    The header is checked against this selection, too: with another, its slots may not fit.
    """
    if not has(header, Option.SELECTED):
        return EVERYTHING
    return asked.selection or Selection.of(header)


def has(header: np.void, option: Option) -> bool:
    """Return whether a kernel was compiled for ``option``."""
    return bool(int(header["options"]) & option)


def read_header(header: np.void, asked: HostFacts) -> np.void | str | None:
    """Return a launch header if it is sound, its fault in words, or None if no kernel wrote one."""
    if not any(header[name].any() for name in _OF_KERNELS):
        return None
    if int(header["magic"]) != abi.MAGIC:
        return (
            f"was not written by ikp: it starts with {int(header['magic']):#010x}, not "
            f"{abi.MAGIC:#010x}. Did the kernel, or another one, write to it as if it were its own?"
        )
    if int(header["abi"]) != abi.ABI_VERSION:
        return (
            f"has record ABI {int(header['abi'])}, this ikp reads ABI {abi.ABI_VERSION}: "
            "the kernel was compiled by another ikp version. Clear the DSL's compile cache and run "
            "again."
        )
    wrong = _contradictions(header, asked)
    if wrong:
        return (
            f"has a corrupt launch header: it claims {'; '.join(wrong)}. Something else "
            f"wrote to this memory after the kernel started."
        )
    return header


_OF_KERNELS = tuple(name for name in abi.LAUNCH_HEADER.names or () if name not in WORDS)
"""Fields of the launch header that a kernel writes; the host writes the others."""


def _contradictions(header: np.void, asked: HostFacts) -> list[str]:
    """Return the claims of a header that can't be true, in words."""
    grid, block = triple(header["grid"]), triple(header["block"])
    blocks, threads = math.prod(grid), math.prod(block)
    warps, slot_bytes = int(header["warps_per_block"]), int(header["slot_bytes"])
    lanes = 64 if has(header, Option.LANES64) else 32
    taken = taken_of(header, asked)
    possible = taken.block_step > 0
    problems = [
        (int(header["options"]) & ~sum(Option) != 0, f"options {int(header['options']):#x}"),
        (not possible, "every 0th block"),
        (min(*grid, *block) < 1, f"an empty grid {grid} or block {block}"),
        (threads > 1024 or warps != -(-threads // lanes), f"{warps} warps for {threads} threads"),
        (
            possible and slot_bytes != _slot_bytes(asked.nbytes, taken, blocks, warps),
            f"slots of {slot_bytes} bytes for {blocks} blocks of {warps} warps",
        ),
        (
            slot_bytes > 0 and blocks > _MOST_BLOCKS,
            f"{blocks} blocks, more than the numbers of slots can distinguish",
        ),
        (int(header["clock"]) not in list(ClockKind), f"clock {int(header['clock'])}"),
        (int(header["overflow"]) not in list(OverflowMode), f"mode {int(header['overflow'])}"),
        (has(header, Option.TOTALS) and not _can_sum(header), "totals where none can be kept"),
        (not _can_leave_others(header), "headers of others where there can be none"),
        (int(header["whole"]) > abi.REGION_MASK, f"region {int(header['whole']):#x}"),
        (
            possible and not are_rows(header, taken.count_slots(blocks, min(warps, MAX_WARPS))),
            f"records of {int(header['together'])} warps in a row",
        ),
    ]
    return [text for found, text in problems if found]


_MOST_BLOCKS = 1 << 32
"""Kernels number blocks in 32 bits."""


def _can_sum(header: np.void) -> bool:
    """Return whether a kernel of these options could be compiled for totals."""
    narrow = int(header["clock"]) < ClockKind.CYCLES64
    return narrow and int(header["overflow"]) == OverflowMode.STOP


def _can_leave_others(header: np.void) -> bool:
    """Return whether a kernel of these options could leave headers of warps without a slot."""
    needed = Option.SELECTED | Option.DENSE
    return not has(header, Option.OTHERS) or int(header["options"]) & needed == needed


def _slot_bytes(size: int, taken: Selection, blocks: int, warps: int) -> int:
    """Return the slot size that a kernel derives from a segment of ``size`` bytes."""
    slots = taken.count_slots(blocks, min(warps, MAX_WARPS), least=1)
    headers = taken.count_headers(blocks, warps) * abi.DENSE_HEADER_BYTES
    return max(0, size - abi.LAUNCH_HEADER_BYTES - headers) // slots & -abi.ALIGNMENT


def triple(values: Iterable[np.uint32]) -> tuple[int, int, int]:
    """Return x, y and z as Python integers."""
    x, y, z = (int(v) for v in values)
    return x, y, z
