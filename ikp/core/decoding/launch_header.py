"""The launch header as read: ``SegmentLayout``, of ``SegmentSource``'s bytes, checked for
contradictions.

A header must have the magic and the ABI, and fields that contradict neither each other nor the
host's facts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Language, Option, OverflowMode
from ikp.core.decoding.dense import are_rows
from ikp.core.segment import EVERYTHING, MAX_WARPS, WORDS, Segment, Selection
from ikp.errors import DecodeError


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


Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """A segment of which the host has only some records of each slot; the others count as empty."""

    nbytes: int  # of the whole segment
    head: Bytes  # the launch header
    heads: Bytes  # of the slots, a row each; then those of warps without a slot
    counts: Ints  # by slot: how many of its first records the host has
    records: Bytes  # these, slot by slot
    tail: bool  # whether the memory behind all that a launch writes is not zero
    in_order: bool = False  # the records of a stream: those kept, from the first to the last


@dataclass(frozen=True)
class SegmentSource:
    """One segment's bytes, with the host's facts of its launch: label, device, clock, options."""

    label: str
    data: Bytes | Excerpt
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
    kernel: str = ""  # its full name
    replay: str = ""  # of which CUDA graph it is, and which node's launch
    number: int = 0  # of its mark in torch.profiler's recording

    @classmethod
    def of(cls, segment: Segment, data: Bytes | Excerpt) -> SegmentSource:
        """Return the source of a segment whose bytes are ``data``."""
        spec = segment.spec
        return cls(
            label=segment.label,
            data=data,
            device=segment.device_name,
            backend=segment.backend,
            clock_rate_hz=segment.clock_rate_hz,
            regions=segment.regions,
            selected=spec.select,
            totals=spec.totals,
            selection=segment.selection if spec.select else None,
            clock=spec.clock,
            overflow=spec.overflow,
            rank=segment.rank,
            kernel=segment.kernel,
            number=segment.number,
        )

    @property
    def nbytes(self) -> int:
        """Size of the segment."""
        return self.data.nbytes

    @cached_property
    def head(self) -> bytes:
        """The launch header, or as much of it as there is."""
        whole = self.data.head if isinstance(self.data, Excerpt) else self.data
        return whole[: abi.LAUNCH_HEADER_BYTES].tobytes()

    @property
    def grid_id(self) -> int:
        """The id that distinguishes a launch's slots from those of an earlier launch."""
        return int.from_bytes(self.head[_GRID_ID], "little")

    @cached_property
    def layout(self) -> SegmentLayout | None:
        """How a launch divided the segment; None if no kernel wrote to that.

        Raises:
            DecodeError: the segment is truncated, foreign, corrupt, or of another ABI version.
        """
        head, nbytes = self.head, self.nbytes
        if len(head) < abi.LAUNCH_HEADER_BYTES:
            raise DecodeError(
                f"the segment {self.label!r} ({nbytes} bytes) is truncated: a segment starts with "
                f"a header of {abi.LAUNCH_HEADER_BYTES} bytes."
            )
        asked = HostFacts(
            *(nbytes, self.backend, self.selected, self.totals),
            *(self.selection, self.clock, self.overflow),
        )
        # Thousands of launches of one kernel differ in this word alone. One layout serves all.
        some = _SOME_ID if self.grid_id else bytes(4)
        found = _layout(head[: _GRID_ID.start] + some + head[_GRID_ID.stop :], asked)
        if isinstance(found, str):
            raise DecodeError(f"the segment {self.label!r} ({nbytes} bytes) {found}")
        return found


_GRID_ID = slice(_AT := abi.field_offsets(abi.LAUNCH_HEADER)["grid_id"], _AT + 4)
_SOME_ID = (1).to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class SegmentLayout:
    """How a launch divided its segment among the warps that record."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    warps_per_block: int
    language: str
    clock: ClockKind
    unit: ClockKind  # of the clock
    overflow: OverflowMode
    summed: bool  # totals are kept, not events
    chosen: Selection
    warps: NDArray[np.int64]  # of a block, those that record
    chosen_slots: int  # slots for which warps were chosen
    slots: int  # in the segment; 0 where none has room for a record
    slot_bytes: int
    header_bytes: int  # of the slot's header, among slot_bytes
    together: int  # so many slots have their records in one row; 0 where each slot's follow its own
    # header
    beside_bytes: int  # of a slot, those that keep no record
    capacity: int  # records that a slot can keep
    needed_bytes: int  # of a segment with room, where there is none
    others: int  # headers behind the slots, one of each warp of the launch; 0 where none writes
    set_aside: int  # bytes behind the slots that the host left for these headers
    whole: int  # region id of the range from each warp's init to its finish; 0 where there is none
    relaunches: int  # earlier launches that wrote to the segment
    fresh: bool  # no earlier launch, so that all is zero where this one didn't write
    notes: tuple[str, ...]  # differences from what the session asked for, in words

    @property
    def slots_end(self) -> int:
        """The offset of the first byte behind the slots."""
        return abi.LAUNCH_HEADER_BYTES + self.slots * self.slot_bytes

    @property
    def end(self) -> int:
        """The offset of the first byte behind all that the launch writes."""
        return self.slots_end + self.others * abi.DENSE_HEADER_BYTES

    @property
    def heads(self) -> list[slice]:
        """The bytes of headers that lie side by side: slots' own, and those behind all slots."""
        begin = abi.LAUNCH_HEADER_BYTES
        found = [slice(begin, begin + self.slots * self.header_bytes)]
        return [*found, slice(self.slots_end, self.end)] if self.others else found


@lru_cache(maxsize=256)
def _layout(head: bytes, asked: HostFacts) -> SegmentLayout | str | None:
    """Return the layout that a launch header gives, a text of its fault, or None if it is empty."""
    found = read_header(np.frombuffer(head, abi.LAUNCH_HEADER)[0], asked)
    if found is None or isinstance(found, str):
        return found
    header = found
    notes: list[str] = []
    overflow, clock = OverflowMode(int(header["overflow"])), ClockKind(int(header["clock"]))
    _note_differences(overflow, clock.bits, asked, notes)
    summed = _is_summed(header, asked, notes)
    chosen = _selection_of(header, asked, notes)
    grid, warps_per_block = triple(header["grid"]), int(header["warps_per_block"])
    _note_step(chosen, grid, notes)
    warps = chosen.chosen_warps(warps_per_block)
    slots = chosen.count_blocks(math.prod(grid)) * len(warps)
    headers = chosen.count_headers(math.prod(grid), warps_per_block)
    slot_bytes, relaunches = int(header["slot_bytes"]), max(0, int(header["launches"]) - 1)
    dense = has(header, Option.DENSE)
    header_bytes = abi.DENSE_HEADER_BYTES if dense else abi.SLOT_HEADER_BYTES
    beside = header_bytes + abi.RECORD_BYTES * int(header["margin"]) * dense
    room = slot_bytes >= abi.min_slot_bytes(overflow, clock, beside)
    capacity = abi.slot_capacity(slot_bytes, overflow, clock, beside)
    set_aside = headers * abi.DENSE_HEADER_BYTES
    proposed = abi.segment_bytes(slots, FIRST_RECORDS, overflow, clock, beside) + set_aside
    return SegmentLayout(
        grid=grid,
        block=triple(header["block"]),
        warps_per_block=warps_per_block,
        language=_language_of(header, asked),
        clock=clock,
        unit=clock.unit,
        overflow=overflow,
        summed=summed,
        chosen=chosen,
        warps=warps,
        chosen_slots=slots,
        slots=slots if room else 0,
        slot_bytes=slot_bytes,
        header_bytes=header_bytes,
        together=int(header["together"]) if dense else 0,
        beside_bytes=beside,
        capacity=capacity if slots and room else 0,
        needed_bytes=0 if room or not slots else proposed,
        others=headers if room and slots and has(header, Option.OTHERS) else 0,
        set_aside=set_aside,
        whole=0 if summed else int(header["whole"]),
        relaunches=relaunches,
        fresh=not relaunches,
        notes=tuple(notes),
    )


def _is_summed(header: np.void, asked: HostFacts, notes: list[str]) -> bool:
    """Return whether the kernel kept totals; note if it did not, though asked to."""
    summed = has(header, Option.TOTALS)
    if asked.totals and not summed:
        notes.append(
            "a timeline was recorded: the code that this kernel was compiled from can't keep totals"
        )
    return summed


def _note_differences(
    overflow: OverflowMode, bits: int, asked: HostFacts, notes: list[str]
) -> None:
    """Note where the layout of the records is not what the session asked for.

    A backend may choose the clock itself: the interpreter has only the host's.
    """
    found = {}
    if asked.overflow not in (None, overflow):
        found[f"overflow={overflow.name.lower()!r}"] = asked.overflow.name.lower()
    if asked.clock is not None and asked.clock.bits != bits:
        found[f"a clock of {bits} bits"] = asked.clock.name.lower()
    for what, wish in found.items():
        notes.append(
            f"recorded with {what} where the session has {wish!r}: the kernel was compiled for "
            "another buffer, or something else wrote to the segment"
        )


def _selection_of(header: np.void, asked: HostFacts, notes: list[str]) -> Selection:
    """Return which warps and blocks have slots; note if the kernel did not heed the selection."""
    taken = taken_of(header, asked)
    if not has(header, Option.SELECTED):
        if asked.selected:
            notes.append(
                "every warp recorded: the code that this kernel was compiled from can't choose "
                "warps or blocks"
            )
    elif not np.array_equal(taken.words(), Selection.of(header).words()):
        notes.append(
            "the choice of warps and blocks in the launch header was overwritten: the session's "
            "own is taken"
        )
    return taken


def _note_step(chosen: Selection, grid: tuple[int, int, int], notes: list[str]) -> None:
    """Note if every n-th block of a grid in several dimensions misses whole columns of it."""
    dimensions = max((at for at, size in enumerate(grid) if size > 1), default=0)
    inner, step = math.prod(grid[:dimensions]), chosen.block_step
    met = inner // math.gcd(step, inner)
    if met == inner or chosen.count_blocks(math.prod(grid)) < 2:
        return
    others = (*range(step - 1, 1, -1), *range(step + 1, step + inner + 2))
    better = next(each for each in others if math.gcd(each, inner) == 1)
    axes = " and ".join("xyz"[:dimensions])
    notes.append(
        f"of a grid of {' x '.join(map(str, grid))} blocks, one in {step} was chosen: they have "
        f"{met} of its {inner} places in {axes}, again and again the same. A step of {better} "
        "comes to all"
    )


def _language_of(header: np.void, asked: HostFacts) -> str:
    """Return the kernel's language by the header, else the backend that made the buffer."""
    language = int(header["language"])
    known = language in list(Language) and language != Language.OTHER
    return Language(language).name.lower() if known else asked.backend


FIRST_RECORDS = 64
"""Records per warp to propose where a buffer was too small to learn how many there are."""
