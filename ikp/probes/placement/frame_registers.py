"""Choice of uniform registers for probes: a kernel's reserved frame, or a pair that is free at one
probe.

A frame is reserved in all code: uniform registers, and some of each thread's. A scavenged pair
holds the descriptor of global memory where a kernel leaves no registers that are free everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from ikp.errors import PatchError
from ikp.probes.code.reserved_registers import FIRST, LENT, NEAR, PLACES, Cell, Frame
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step
from ikp.sass.assembly.chips import HOPPER, Chip
from ikp.sass.dataflow.free_registers import FIRST_UNIFORM, FreeRegisters, Spare, aligned_pairs
from ikp.sass.disassembly.effects import UR, R

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
