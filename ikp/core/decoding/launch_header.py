"""The launch header of a segment: whether it is one, what it says, and so how the rest lies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Language, Option, OverflowMode
from ikp.core.segment import EVERYTHING, MAX_WARPS, Selection
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
    selection: Selection | None = None  # that choice, as the host wrote it
    clock: ClockKind | None = None  # that the host asked for
    overflow: OverflowMode | None = None  # that the host asked for
    rank: int | None = None  # of the process that launched the kernel


@dataclass(frozen=True, slots=True)
class Layout:
    """How a launch divided its segment among the warps that record."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    warps_per_block: int
    grid_id: int
    language: str
    clock: ClockKind
    unit: ClockKind  # of the clock
    overflow: OverflowMode
    summed: bool  # totals are kept, not events
    chosen: Selection
    warps: NDArray[np.int64]  # of a block, those that record
    slots: int  # in the segment; 0 where none has room for a record
    slot_bytes: int
    header_bytes: int  # of those, the slot's header
    together: int  # the records of so many slots stand in a row; 0 where each has its own behind it
    capacity: int  # records that a slot can get
    needed_bytes: int  # of a segment with room, where there is none
    whole: int  # region id of the range from each warp's init to its finish; 0 where none is told
    relaunches: int  # earlier launches that wrote to the segment
    fresh: bool  # there was none, so that all is zero where this one didn't write
    notes: tuple[str, ...]  # where that is not as it was asked for, in words

    @property
    def stride(self) -> int:
        """How many bytes there are from a slot's record to its next."""
        return self.clock.record.itemsize * max(1, self.together)

    def first_records(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the records of slots begin."""
        own = self.slot_bytes - self.header_bytes
        if not self.together:
            return abi.LAUNCH_HEADER_BYTES + ids * self.slot_bytes + self.header_bytes
        begin = abi.LAUNCH_HEADER_BYTES + self.slots * self.header_bytes
        within = ids % self.together
        return begin + (ids - within) * own + within * self.clock.record.itemsize


def read_layout(source: Source) -> Layout | None:
    """Return how a launch divided its segment; None if no kernel wrote to that.

    Raises:
        DecodeError: the segment is truncated, foreign, corrupt, or of another ABI version.
    """
    header = _read_header(source)
    if header is None:
        return None
    notes: list[str] = []
    overflow, clock = OverflowMode(int(header["overflow"])), ClockKind(int(header["clock"]))
    _note_differences(overflow, clock.bits, source, notes)
    summed = _is_summed(header, source, notes)
    chosen = _selection_of(header, source, notes)
    grid, warps_per_block = _triple(header["grid"]), int(header["warps_per_block"])
    warps = chosen.chosen_warps(warps_per_block)
    slots = chosen.count_blocks(math.prod(grid)) * len(warps)
    slot_bytes, relaunches = int(header["slot_bytes"]), max(0, int(header["launches"]) - 1)
    dense = _has(header, Option.DENSE)
    header_bytes = abi.DENSE_HEADER_BYTES if dense else abi.SLOT_HEADER_BYTES
    capacity = abi.slot_capacity(slot_bytes, overflow, clock, header_bytes)
    least = abi.min_slot_bytes(overflow, clock, header_bytes)
    needed, shortage = _why_no_room(source, slots, slot_bytes < least, overflow, clock)
    if shortage:
        notes.append(shortage)
        slots = capacity = 0
    return Layout(
        grid=grid,
        block=_triple(header["block"]),
        warps_per_block=warps_per_block,
        grid_id=int(header["grid_id"]),
        language=_language_of(header, source),
        clock=clock,
        unit=clock.unit,
        overflow=overflow,
        summed=summed,
        chosen=chosen,
        warps=warps,
        slots=slots,
        slot_bytes=slot_bytes,
        header_bytes=header_bytes,
        together=int(header["together"]) if dense else 0,
        capacity=capacity,
        needed_bytes=needed,
        whole=0 if summed else int(header["whole"]),
        relaunches=relaunches,
        fresh=not relaunches,
        notes=tuple(notes),
    )


def _is_summed(header: np.void, source: Source, notes: list[str]) -> bool:
    """Return whether the kernel kept totals; tell where it did not heed the wish."""
    summed = _has(header, Option.TOTALS)
    if source.totals and not summed:
        notes.append(
            "a timeline was recorded: the code that this kernel was compiled from can't keep totals"
        )
    return summed


def _note_differences(overflow: OverflowMode, bits: int, source: Source, notes: list[str]) -> None:
    """Tell where the layout of the records is not what the session asked for.

    Which clock it is, a backend may choose: the interpreter has only the host's.
    """
    found = {}
    if source.overflow not in (None, overflow):
        found[f"overflow={overflow.name.lower()!r}"] = source.overflow.name.lower()
    if source.clock is not None and source.clock.bits != bits:
        found[f"a clock of {bits} bits"] = source.clock.name.lower()
    for what, asked in found.items():
        notes.append(
            f"recorded with {what} where the session has {asked!r}: the kernel was compiled for "
            "another buffer, or something else wrote to the segment"
        )


def _selection_of(header: np.void, source: Source, notes: list[str]) -> Selection:
    """Return which warps and blocks have slots; tell where the kernel did not heed the choice."""
    taken = _taken(header, source)
    if not _has(header, Option.SELECTED):
        if source.selected:
            notes.append(
                "every warp recorded: the code that this kernel was compiled from can't choose "
                "warps or blocks"
            )
    elif taken != Selection.of(header):
        notes.append(
            "the choice of warps and blocks in the launch header was overwritten: the session's "
            "own is taken"
        )
    return taken


def _taken(header: np.void, source: Source) -> Selection:
    """Return the choice that holds: the host's own where it is known, for nobody overwrites that.

    The header is checked against this one, too: with another, its slots may not fit the segment.
    """
    if not _has(header, Option.SELECTED):
        return EVERYTHING
    return source.selection or Selection.of(header)


def _has(header: np.void, option: Option) -> bool:
    return bool(int(header["options"]) & option)


def _read_header(source: Source) -> np.void | None:
    """Return the launch header of a segment, checked; None if no kernel wrote one.

    Raises:
        DecodeError: it is not a launch header of this ABI, or contradicts the segment's size.
    """
    data = source.data
    where = f"the segment {source.label!r} ({len(data)} bytes)"
    if len(data) < abi.LAUNCH_HEADER_BYTES:
        raise DecodeError(
            f"{where} is truncated: a segment starts with a header of {abi.LAUNCH_HEADER_BYTES} "
            "bytes."
        )
    head = np.ascontiguousarray(data[: abi.LAUNCH_HEADER_BYTES])
    header: np.void = head.view(abi.LAUNCH_HEADER)[0]
    if not any(header[name].any() for name in _OF_KERNELS):
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
    _check_launch(header, source, where)
    return header


_OF_KERNELS = tuple(
    name for name in abi.LAUNCH_HEADER.names or () if name not in Selection.__slots__
)
"""Fields of the launch header that a kernel writes; the host writes the others."""


def _check_launch(header: np.void, source: Source, where: str) -> None:
    grid, block = _triple(header["grid"]), _triple(header["block"])
    blocks, threads = math.prod(grid), math.prod(block)
    warps, slot_bytes = int(header["warps_per_block"]), int(header["slot_bytes"])
    lanes = 64 if _has(header, Option.LANES64) else 32
    taken = _taken(header, source)
    possible = taken.block_step > 0
    problems = [
        (int(header["options"]) & ~sum(Option) != 0, f"options {int(header['options']):#x}"),
        (not possible, "every 0th block"),
        (min(*grid, *block) < 1, f"an empty grid {grid} or block {block}"),
        (threads > 1024 or warps != -(-threads // lanes), f"{warps} warps for {threads} threads"),
        (
            possible and slot_bytes != _slot_bytes(len(source.data), taken, blocks, warps),
            f"slots of {slot_bytes} bytes for {blocks} blocks of {warps} warps",
        ),
        (
            slot_bytes > 0 and blocks > _MOST_BLOCKS,
            f"{blocks} blocks, of which a slot's number can't tell all apart",
        ),
        (int(header["clock"]) not in list(ClockKind), f"clock {int(header['clock'])}"),
        (int(header["overflow"]) not in list(OverflowMode), f"mode {int(header['overflow'])}"),
        (_has(header, Option.TOTALS) and not _can_sum(header), "totals where none can be kept"),
        (int(header["whole"]) > abi.REGION_MASK, f"region {int(header['whole']):#x}"),
        (
            _has(header, Option.DENSE) and not _are_rows(header, blocks),
            f"records of {int(header['together'])} warps in a row",
        ),
    ]
    wrong = [text for found, text in problems if found]
    if wrong:
        raise DecodeError(
            f"{where} has a corrupt launch header: it claims {'; '.join(wrong)}. Something else "
            f"wrote to this memory after the kernel started."
        )


def _are_rows(header: np.void, blocks: int) -> bool:
    """Tell whether records can stand in such rows: whole ones, of one layout."""
    together, warps = int(header["together"]), int(header["warps_per_block"])
    plain = int(header["clock"]) < ClockKind.CYCLES64
    plain &= int(header["overflow"]) == OverflowMode.STOP
    plain &= not _has(header, Option.SELECTED | Option.TOTALS)
    return plain and together > 0 and blocks * warps % together == 0


_MOST_BLOCKS = 1 << 32
"""Kernels number blocks in 32 bits."""


def _can_sum(header: np.void) -> bool:
    """Tell whether a kernel of these options could be compiled for totals."""
    narrow = int(header["clock"]) < ClockKind.CYCLES64
    return narrow and int(header["overflow"]) == OverflowMode.STOP


def _slot_bytes(size: int, taken: Selection, blocks: int, warps: int) -> int:
    """Return what a kernel makes of a segment of ``size`` bytes."""
    chosen = taken.count_blocks(blocks), len(taken.chosen_warps(min(warps, MAX_WARPS)))
    slots = max(1, chosen[0]) * max(1, chosen[1])
    return (size - abi.LAUNCH_HEADER_BYTES) // slots & -abi.ALIGNMENT


def _language_of(header: np.void, source: Source) -> str:
    """Return what the kernel says it was written in, else the backend that made the buffer."""
    language = int(header["language"])
    known = language in list(Language) and language != Language.OTHER
    return Language(language).name.lower() if known else source.backend


def _triple(values: Iterable[np.uint32]) -> tuple[int, int, int]:
    """Return x, y and z as Python integers."""
    x, y, z = (int(v) for v in values)
    return x, y, z


_FIRST_RECORDS = 64
"""Records per warp to propose where a buffer was too small to learn how many there are."""


def _why_no_room(
    source: Source, slots: int, short: bool, overflow: OverflowMode, clock: ClockKind
) -> tuple[int, str]:
    """Return what size would do, and why no warp had room for a record; 0 and "" if they had."""
    if not slots:
        return 0, "nothing recorded: none of the warps and blocks chosen to record exist"
    if short:
        needed = abi.segment_bytes(slots, _FIRST_RECORDS, overflow, clock)
        return needed, (
            f"nothing recorded: {len(source.data)} bytes are too small for {slots} warps; "
            f"{remedy(source, needed)} holds {_FIRST_RECORDS} records per warp"
        )
    return 0, ""


def remedy(source: Source, needed: int) -> str:
    """Return what to call so that a buffer has so many bytes."""
    if needed > abi.MAX_SEGMENT_BYTES:
        return f"only {needed} bytes, more than a buffer can have,"
    return f"prof.buffer({source.label!r}, size={needed})"
