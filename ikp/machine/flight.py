"""What is still under way: registers that a late instruction has yet to write, or yet to read.

A register may be dead and yet not be free: a load that nobody needs still writes it, a store that
was issued still reads it. Such an instruction takes a scoreboard, and whoever waits for that one
ends it. A warpgroup's product takes none: its registers are its own until the wait for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ikp.machine.control import NONE, SCOREBOARDS
from ikp.machine.liveness import Liveness, with_calls
from ikp.machine.resources import BITS, table

_PRODUCTS = SCOREBOARDS
"""The place of warpgroups' products, after those of the scoreboards."""
_TAKEN = 1 << BITS
"""Marks a scoreboard that is taken, whichever registers it is taken for."""
_COUNTED = re.compile(r"SB(\d)")
_PIPELINE = 16
"""Cycles after which an instruction that takes no scoreboard has written, with a margin."""

_State = tuple[int, ...]
"""For each scoreboard, and for products: the registers under way."""


@dataclass(frozen=True)
class Flight:
    """What is under way before each instruction of one kernel."""

    liveness: Liveness

    @cached_property
    def table(self) -> NDArray[np.bool_]:
        """Whether to overwrite a register is unsafe: rows of instructions, a column for each bit
        of ``resources``.
        """
        mask = _TAKEN - 1
        sets = [0] * len(self._states)
        for at, state in enumerate(self._states):
            late = 0
            for each in state:
                late |= each
            sets[at] = late & mask
        return table([late | soon for late, soon in zip(sets, self._recent, strict=True)])

    @cached_property
    def taken(self) -> NDArray[np.bool_]:
        """Whether a scoreboard may be taken: rows of instructions, a column for each of six."""
        taken = [[bool(each & _TAKEN) for each in state[:SCOREBOARDS]] for state in self._states]
        return np.array(taken, dtype=np.bool_).reshape(-1, SCOREBOARDS)

    @cached_property
    def used(self) -> frozenset[int]:
        """The scoreboards that the kernel takes or waits for anywhere."""
        controls = self.liveness.flow.code.controls
        boards = {*controls.writes.tolist(), *controls.reads.tolist()} - {NONE}
        waited = int(np.bitwise_or.reduce(controls.waits, initial=0))
        boards |= {board for board in range(SCOREBOARDS) if waited >> board & 1}
        return frozenset(boards | self.counted)

    @cached_property
    def counted(self) -> frozenset[int]:
        """The scoreboards that some wait counts down: whoever else takes one miscounts it."""
        found = (
            _COUNTED.search(i.rest)
            for i in self.liveness.flow.code.instructions
            if i.opcode.startswith("DEPBAR")
        )
        return frozenset(int(each[1]) for each in found if each)

    @cached_property
    def _steps(self) -> dict[int, tuple[int, int, list[tuple[int, int]]]]:
        """For each instruction that matters: what it waits for (a bit each), then what it takes."""
        code, effects = self.liveness.flow.code, self.liveness.effects
        controls = code.controls
        writes, reads, waits = (
            each.tolist() for each in (controls.writes, controls.reads, controls.waits)
        )
        steps = {}
        for at, instruction in enumerate(code.instructions):
            opcode = instruction.opcode
            ends, takes = waits[at], list[tuple[int, int]]()
            if opcode.startswith(("DEPBAR", "WARPGROUP.DEPBAR")):
                ends |= _awaited(opcode, instruction.rest)
            elif "GMMA" in opcode and not instruction.guard.endswith("PT"):
                takes.append((_PRODUCTS, effects[at].reads | effects[at].writes | _TAKEN))
            if writes[at] != NONE:
                takes.append((writes[at], effects[at].writes | _TAKEN))
            if reads[at] != NONE:
                takes.append((reads[at], effects[at].reads | _TAKEN))
            if ends or takes:
                steps[at] = (at, ends, takes)
        return steps

    @cached_property
    def _states(self) -> list[_State]:
        """What is under way before each instruction, its own waits not yet done."""
        states: list[_State] = [_NOTHING] * len(self.liveness.flow.code.instructions)
        for number, block in enumerate(self.liveness.flow.graph.blocks):
            now = self._entering[number]
            for at in range(block.first, block.end):
                states[at] = now
                if step := self._steps.get(at):
                    now = _stepped(now, step)
        return states

    @cached_property
    def _entering(self) -> list[_State]:
        """What is under way where each block begins, on any way there."""
        after = with_calls(self.liveness.flow)
        blocks = self.liveness.flow.graph.blocks
        inside = [
            [self._steps[at] for at in range(b.first, b.end) if at in self._steps] for b in blocks
        ]
        entering = [_NOTHING] * len(blocks)
        work = list(range(len(blocks)))[::-1]
        while work:
            block = work.pop()
            now = entering[block]
            for step in inside[block]:
                now = _stepped(now, step)
            for to in after[block]:
                merged = tuple([a | b for a, b in zip(entering[to], now, strict=True)])
                if merged != entering[to]:
                    entering[to] = merged
                    work.append(to)
        return entering

    @property
    def _recent(self) -> Iterator[int]:
        """Yield what the last few instructions before each one write, whoever needs it.

        In the order of the code: a jump takes longer than that.
        """
        effects = self.liveness.effects
        stalls = self.liveness.flow.code.controls.stalls.tolist()
        window: list[tuple[int, int]] = []  # (cycle, what was written)
        cycle = 0
        for effect, stall in zip(effects, stalls, strict=True):
            while window and cycle - window[0][0] >= _PIPELINE:
                window.pop(0)
            recent = 0
            for _, written in window:
                recent |= written
            yield recent
            if effect.writes:
                window.append((cycle, effect.writes))
            cycle += max(stall, 1)


_NOTHING: _State = (0,) * (SCOREBOARDS + 1)


def _stepped(state: _State, step: tuple[int, int, list[tuple[int, int]]]) -> _State:
    _, ends, takes = step
    now = list(state)
    if ends:
        now = [0 if ends >> board & 1 else each for board, each in enumerate(now)]
    for board, registers in takes:
        now[board] |= registers
    return tuple(now)


def _awaited(opcode: str, rest: str) -> int:
    """Return which places a counting wait ends, a bit each: only one down to none ends any."""
    _, _, left = rest.partition(",")
    if left.strip(" ;") not in ("0x0", ""):
        return 0
    if opcode.startswith("WARPGROUP"):
        return 1 << _PRODUCTS
    found = _COUNTED.search(rest)
    return 1 << int(found[1]) if found else 0
