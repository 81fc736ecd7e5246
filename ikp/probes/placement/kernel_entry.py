"""Placement of the entry's code: clocks are read first, and a warp's slot is found later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ikp.core.segment import Selection
from ikp.probes.code import entry_code, near_addresses
from ikp.probes.code.launch_header import HeaderValues
from ikp.probes.code.reserved_registers import Frame
from ikp.probes.code.selection_code import OTHERS, part
from ikp.probes.placement.scavenged_pair import Lender, lent
from ikp.probes.placement.slot_search import start, start_near
from ikp.sass.assembly import forms
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.insertion.displacement import Insertion

_SOON: Final = 8
"""How many instructions pass until both clocks can be read from their registers."""


@dataclass(frozen=True)
class Entrance:
    """Places the entry's code of one kernel.

    Args:
        room: the free registers.
        frame: the reserved registers.
        assembled: makes words of instructions, a scoreboard, and the register files to settle.
        lender: finds a pair for the descriptor of global memory, where none is reserved.
    """

    room: FreeRegisters
    frame: Frame
    assembled: Callable[..., tuple[int, ...]]
    lender: Lender | None = None

    def made(self, first: int, values: HeaderValues) -> list[Insertion] | None:
        """Return the insertions; None where there are too few registers.

        Args:
            first: the instruction before which the first record is made, or a start is kept.
            values: what the launch header says of the kernel.
        """
        entered = self._near if self.frame.near else self._own
        found, chosen = entered(first, values), self.frame.blocks
        parted = [] if chosen is None else self._parted(chosen)
        return None if found is None or parted is None else [*parted, *found]

    def _parted(self, chosen: Selection) -> list[Insertion] | None:
        """Return the code that branches in blocks that record; the others fall through."""
        spare = self.room.entering
        if not (spare.quads and spare.predicates and spare.scoreboards):
            return None
        quad, ok = spare.quads[-1], spare.predicates[-1]
        others = [each for each in spare.registers if each // 4 * 4 != quad]
        if len(others) < OTHERS:
            return None
        steps = part(chosen, quad, others, ok, flat=self.frame.flat)
        left = self.assembled(steps, board := spare.scoreboards[-1], "")
        rank = self.assembled([forms.to_uniform(self.frame.records, quad)], board)
        return [Insertion(0, left, skipped=True), Insertion(0, rank, skipped=True)]

    def _own(self, first: int, values: HeaderValues) -> list[Insertion] | None:
        kept = bool(self.frame.entered)
        begun = start(self.room, first, self.frame.warps is not None, kept, self.lender)
        if begun is None:
            return None
        ground, stored = begun.ground, None if kept else begun.clocks
        clocks = self.assembled(entry_code.entry(self.frame, begun.clocks), ground.scoreboard)
        steps = entry_code.locate(self.frame, ground, values, stored)
        steps = lent(steps, begun.pair)
        return _put(clocks, begun.index, self.assembled(steps, ground.scoreboard))

    def _near(self, first: int, values: HeaderValues) -> list[Insertion] | None:
        ours = {*self.frame.all, self.frame.room + 1}
        free = [each for each in self.room.unused_uniform if each not in ours]
        pair = next(each for each in free if each % 2 == 0 and each + 1 in free)
        begun = start_near(self.room, first, pair)
        if begun is None:
            return None
        ground, held, clocks = begun.ground, begun.held, begun.clocks
        read = entry_code.read_clocks(clocks) if held else entry_code.entry(self.frame, clocks)
        # No instruction reads the registers that the clocks are kept in before a warp leaves.
        settled = "" if held and begun.index >= _SOON else "R"
        made = self.assembled(read, ground.scoreboard, settled)
        kept = clocks if held else None
        steps = near_addresses.locate(self.frame, ground, values, kept)
        return _put(made, begun.index, self.assembled(steps, ground.scoreboard))


def _put(clocks: tuple[int, ...], index: int, found: tuple[int, ...]) -> list[Insertion]:
    return [Insertion(0, clocks, skipped=True), Insertion(index, found, skipped=True)]
