"""Choice of registers for probes: how many a thread may have, a reserved frame, a scavenged pair,
record words.

More registers a thread may leave an SM room for fewer blocks. A frame is reserved in all code:
uniform registers, and some of each thread's. A scavenged pair holds the descriptor of global memory
where a kernel leaves no registers that are free everywhere. Layouts say in which free registers a
record's words are, the best ones first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeAlias

from ikp.errors import PatchError
from ikp.probes.code.reserved_registers import FIRST, LENT, NEAR, PLACES, Cell, Frame, address_at
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step
from ikp.sass.assembly.chips import HOPPER, Chip
from ikp.sass.cubins.attributes import AttributeCode
from ikp.sass.cubins.capacity import LANES, PORTION, most_registers_of, warps_with
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.dataflow.free_registers import FIRST_UNIFORM, FreeRegisters, Spare, aligned_pairs
from ikp.sass.disassembly.effects import UR, R, span

_ENOUGH = 32
"""With so many registers a thread, an SM holds as many threads as it can."""
_MOST = 255
_MOST_THREADS = 1024


def block_size(kernel: Kernel) -> list[int]:
    """Return how many threads a block has in each dimension; nothing if the file doesn't say."""
    known = (each.words for each in kernel.attributes if each.code == AttributeCode.REQNTID)
    return next(known, [])


def warps_of(threads: int) -> int:
    """Return how many warps so many threads are."""
    return -(-threads // LANES)


def register_counts(before: int, warps: int | None, chip: Chip) -> list[int]:
    """Return the register counts to try, the best first: with the others, an SM has fewer blocks.

    The first leaves an SM room for as many blocks as before. Where all of a kernel's registers are
    taken at its entry, eight more are too few to find a warp's slot with: that takes 15 to 20.

    Args:
        before: how many a thread has.
        warps: of a block; None where that is not known.
        chip: what the kernel is for.
    """
    limit = most_registers_of(warps or warps_of(_MOST_THREADS))
    most, least = min(_MOST, limit), max(before, _ENOUGH)
    whole = max(least, min(-(-least // PORTION) * PORTION, most))
    more = range(whole, most + 1, PORTION) if warps else [whole]
    same = (c for c in more if _blocks(c, warps, chip) == _blocks(whole, warps, chip))
    free = max(same, default=whole)
    return [free, *range(free + PORTION, min(free + 2 * PORTION, most) + 1, PORTION)]


def cost(warps: int | None, before: int, now: int, chip: Chip) -> list[str]:
    """Return a message where more registers leave room for fewer blocks; else an empty list."""
    were, are = (_blocks(count, warps, chip) for count in (before, now))
    if were == are:
        return []
    message = (
        f"each thread takes {now} registers in place of {before}: an SM has room for {are} blocks, "
        f"not {were}, as far as registers go."
        if warps
        else f"each thread takes {now} registers in place of {before}: an SM may have room for "
        "fewer blocks."
    )
    return [message]


def _blocks(registers: int, warps: int | None, chip: Chip) -> int:
    room = min(warps_with(max(registers, _ENOUGH)), chip.warps)
    return room // (warps or 1)


def most_registers(registers: int, warps: int, shared: int, chip: Chip) -> int:
    """Return the most registers a thread with which an SM has room for as many warps as now."""
    counts = range(_MOST // PORTION * PORTION, registers, -PORTION)
    room = resident(registers, warps, shared, chip)
    kept = (each for each in (_MOST, *counts) if resident(each, warps, shared, chip) == room)
    return next(kept, registers)


def resident(registers: int, warps: int, shared: int, chip: Chip) -> int:
    """Return how many warps an SM has room for, as far as registers and shared memory go."""
    room = (chip.shared << 10) // shared if shared else chip.warps
    return warps * max(min(_blocks(registers, warps, chip), room), 1)


_CLOCKS = 3
_LEAST = 5
_PAIRS = 5
_LOADED = re.compile(r"ULDC\.64 UR(\d+), c\[0x0\]\[(0x[0-9a-f]+)\]")


def frame(
    room: FreeRegisters, warps: int | None, cell: Cell, chip: Chip = HOPPER, near: bool = False
) -> Frame | None:
    """Return a frame of registers that the kernel never names; None where they are too few.

    Where there are pairs enough, these hold addresses. Where few are left, the clocks are stored at
    the entry. Where fewer are, the frame shares the kernel's own pair with the descriptor of global
    memory. Part of it is then in threads' own registers, which are reserved in ``room``. Where the
    kernel keeps no such pair, each probe has a scavenged one.

    Args:
        room: the kernel's free registers.
        warps: of a block, in one dimension; None where it is not fixed.
        cell: the constants that say where to record.
        chip: the chip that the kernel is for.
        near: whether its pairs may hold addresses, if the chip can do that.
    """
    free = list(room.unused_uniform)
    if near and chip.near and warps is not None and (made := _near(free, warps, cell)):
        return made
    pairs = aligned_pairs(free)[:1]
    shared = _descriptors(room, chip)[:1]
    for pair in (*pairs, *shared):
        others = [each for each in free if each // 2 != pair // 2]
        if len(others) >= _LEAST:
            return _made(pair, others, warps, cell)
    candidates = (_with_own(room, free, pair, warps, cell) for pair in (*shared, *pairs, LENT))
    return next(filter(None, candidates), None)


def _with_own(
    room: FreeRegisters, free: list[int], pair: int, warps: int | None, cell: Cell
) -> Frame | None:
    """Return a frame part of which is in threads' own registers; None where these are too few."""
    others = [each for each in free if each // 2 != pair // 2]
    missing = _LEAST - len(others)
    own = room.unused_own[-missing:] if missing > 0 else ()
    if len(others) + len(own) < _LEAST:
        return None
    room.reserve(R.first + each for each in own)
    # The cursor is the warp's where it can be: diverged threads have one cursor then.
    kept = [*others[1:], *range(FIRST, FIRST + len(own)), *others[:1]]
    return replace(_made(pair, kept, warps, cell), own=own)


def _near(free: list[int], warps: int, cell: Cell) -> Frame | None:
    """Return a frame whose pairs hold addresses, if one more pair is left for the entry."""
    pairs = aligned_pairs(free)
    if len(pairs) <= _PAIRS:
        return None
    header, records, clocks, last, room = pairs[:_PAIRS]
    entered = (clocks, clocks + 1, last + 1)
    return Frame(NEAR, records, header + 1, room, last, header, entered, cell, warps)


def _made(pair: int, others: list[int], warps: int | None, cell: Cell) -> Frame:
    """Return a frame of a pair and others; the last of the five that it needs is the cursor."""
    records, high, room_left, header, count = others[:_LEAST]
    clocks = others[_LEAST : _LEAST + _CLOCKS] if len(others) > _LEAST + _CLOCKS else []
    return Frame(pair, records, high, room_left, count, header, tuple(clocks), cell, warps)


def _descriptors(room: FreeRegisters, chip: Chip) -> list[int]:
    """Return the pairs in which the kernel keeps the descriptor of global memory and no more."""
    offset = chip.offset_of(PLACES.descriptor)
    code = room.liveness.flow.code
    loads: dict[int, set[int]] = {}
    for at in code.having(lambda opcode: opcode == "ULDC.64"):
        found = _LOADED.fullmatch(code.instructions[at].text)
        if found and int(found[2], 16) == offset:
            loads.setdefault(int(found[1]), set()).add(at)
    effects = room.liveness.effects
    return [
        pair
        for pair, at in loads.items()
        if not any(
            effect.writes >> (UR.first + pair) & 3 and number not in at
            for number, effect in enumerate(effects)
        )
    ]


_FIELD: Final = 0x7F
"""The field of a store's upper half that names the pair."""
_BOTH: Final = frozenset({("U", LENT), ("U", LENT + 1)})


@dataclass(frozen=True, slots=True)
class Lender:
    """Finds scavenged pairs in one kernel.

    Args:
        room: the free registers.
        apart: its basic blocks in which warps may be diverged, and for each of them those in which
            the rest of the warp may be meanwhile.
    """

    room: FreeRegisters
    apart: Mapping[int, AbstractSet[int]]

    def pair(self, index: int, spare: Spare) -> int | None:
        """Return the first register of a pair; None where there is none.

        Where a warp may be diverged, the rest of it must not need the pair, wherever it is.
        Registers that the kernel never names are reserved for other values.

        Args:
            index: the instruction before which the probe is.
            spare: the registers that are free there.
        """
        last = len(self.room.free) - 1
        others = {*range(FIRST_UNIFORM), *self.room.unused_uniform}
        free = set(spare.uniform_registers) - others
        block = self.room.liveness.flow.graph.block(min(index, last))
        if block in self.apart:
            free &= self._unnamed(self.apart[block])
        return max(aligned_pairs(free), default=None)

    def _unnamed(self, blocks: AbstractSet[int]) -> set[int]:
        """Return the registers that are not named, live or in flight in some blocks."""
        flow = self.room.liveness.flow
        if any(flow.graph.jumps.calls.values()):
            return set()  # the rest may be in a function
        rows = flow.instructions(frozenset(blocks))
        named = self.room.liveness.named(rows)
        free = self.room.through(rows).uniform_registers
        return {each for each in free if not named >> UR.first + each & 1}

    def to_leave(self, index: int, spare: Spare) -> int:
        """Return a pair for the code before an EXIT.

        Raises:
            PatchError: there is none.
        """
        pair = self.pair(index, spare)
        if pair is None:
            raise PatchError(
                "it uses nearly all its uniform registers, and where the kernel ends, at "
                f"instruction {index}, no two in a row are free."
            )
        return pair


def lent(steps: Sequence[Step], pair: int | None) -> list[Step]:
    """Return probe code whose stores name a pair, which is loaded behind its first two steps.

    These read a clock, or begin the longest computation; and the kernel's instructions right before
    may read the pair for so long. Where there is no pair, the code stays as it is.
    """
    if pair is None:
        return list(steps)
    loaded = forms.constant(pair, 0, PLACES.descriptor, pair=True)
    named = [_named(each, pair) for each in steps]
    first = next((at for at, each in enumerate(steps) if each.reads & _BOTH), None)
    if first is None:
        return named
    behind = min(first, 2)
    return [*named[:behind], loaded, *named[behind:]]


def _named(step: Step, pair: int) -> Step:
    if not step.reads & _BOTH:
        return step
    reads = step.reads - _BOTH | {("U", pair), ("U", pair + 1)}
    return step._replace(high=step.high & ~_FIELD | pair, reads=reads)


_ADDRESSES = 5
"""Of so many addresses, one overlaps no record's words: these are in four registers, at most."""
RecordWords: TypeAlias = tuple[int, int, int]
"""The registers of a record's tag, its start, and its end."""


def record_layouts(spare: Spare, near: bool, late: int) -> Iterator[list[RecordWords]]:
    """Yield the layouts of a record's words that leave room for their address, the best ones first.

    Each is given by the registers of its tag, its start, and its end. A store of a row reads the
    register behind them, too: none that is ``late``, which a load may have yet to write.
    """
    every = (spare.registers if near else spare.pairs)[:_ADDRESSES]
    where = [address_at(each, near=near) for each in every]
    for way in kinds_of_layouts(spare.registers, spare.pairs, late):
        yield [each for each in way if not all(map(word_bits(*each).__and__, where))]


def _there(way: Iterable[RecordWords], late: int) -> list[RecordWords]:
    """Return the layouts whose stores read no register that is ``late``."""
    return [each for each in way if not (_in_a_row(*each) and late >> R.first + each[0] + 3 & 1)]


def kinds_of_layouts(
    free: tuple[int, ...], pairs: tuple[int, ...], late: int
) -> Iterator[list[RecordWords]]:
    """Yield lists of layouts of a record's words, the best kind first; see ``record_layouts``."""
    members = set(free)
    rows = [(at, at + 1, at + 2) for at in pairs if at % 4 == 0 and at + 2 in members]
    yield _there(rows, late)
    apart = [(at, at + 1, each) for at in pairs[:1] for each in free if each // 2 != at // 2]
    yield _there(apart, late)
    few = sorted(free, key=lambda each: each ^ 1 in members)  # those without a neighbour first
    yield _there(zip(few, few[1:], few[2:], strict=False), late)
    yield [(at, at + 1, at + 1) for at in pairs]
    yield [(first, second, second) for first, second in pairwise(few)]
    yield [(each, each, each) for each in free]


def word_registers(tag: int, start: int, end: int) -> Sequence[int]:
    """Return the registers of a record's words."""
    return range(tag, tag + 4) if _in_a_row(tag, start, end) else (tag, start, end)


def word_bits(tag: int, start: int, end: int) -> int:
    """Return the registers of a record's words, as bits."""
    return span(tag, 4) if _in_a_row(tag, start, end) else 1 << tag | 1 << start | 1 << end


def _in_a_row(tag: int, start: int, end: int) -> bool:
    """Whether one store takes a record's words, with the register behind them."""
    return tag % 4 == 0 and start == tag + 1 and end == tag + 2
