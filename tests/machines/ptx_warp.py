"""Threads in lockstep, on the CPU: for kernels whose threads exchange values, and branch as one.

Warps run in turns of random lengths. One of them stops early on until all others have ended, so
that what these write may come between what it reads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice

from tests.machines.ptx_machine import MAX_THREADS, WARP, Dim, Machine, _Thread
from tests.machines.ptx_opcodes import Step, _reader, _register, _writer, compile_instruction
from tests.machines.ptx_program import FaultError, Instruction, Program

_NOTHING = {"bar", "membar"}
_TURNS = (1, 10, 100, 1000)
_HELD = 100


def launch(machine: Machine, ptx: str, params: Sequence[int], grid: Dim, seed: int = 0) -> None:
    """Run a kernel of blocks of one warp, in turns."""
    program = Program(ptx)
    code = [_compiled(each, program) for each in program.instructions]
    chance = random.Random(seed)
    running = [
        _Warp(machine, params, grid, block).run(program.instructions, code)
        for block in range(grid[0] * grid[1] * grid[2])
    ]
    held: Iterator[int] | None = running.pop(chance.randrange(len(running)))
    _ = [*islice(held or (), chance.randrange(_HELD))]
    while running or held:
        if not running:
            running, held = [held], None
        turn = chance.choice(running)
        if not any(True for _ in islice(turn, chance.choice(_TURNS))):
            running.remove(turn)
    machine.memory.forget_writers()


def _compiled(instruction: Instruction, program: Program) -> Step | None:
    if instruction.name in {"shfl", "atom", *_NOTHING}:
        return None
    return compile_instruction(instruction, program)


class _Warp:
    def __init__(self, machine: Machine, params: Sequence[int], grid: Dim, block: int) -> None:
        self._machine = machine
        self._lanes = [_Thread(machine, params, grid, (WARP, 1, 1), block, n) for n in range(WARP)]

    def run(
        self, instructions: Sequence[Instruction], code: Sequence[Step | None]
    ) -> Iterator[int]:
        """Execute an instruction before each value."""
        at = 0
        while at < len(code):
            yield at
            step, instruction = code[at], instructions[at]
            if step is None:
                self._together(instruction)
                at += 1
                continue
            goes = {step(lane) for lane in self._lanes}
            if len(goes) > 1:
                raise FaultError(f"lanes part at {instruction.text}")
            to = goes.pop()
            at = at + 1 if to is None else to

    def _together(self, i: Instruction) -> None:
        if i.name in _NOTHING:
            return
        asked = [lane for lane in self._lanes if _runs(i, lane)]
        if i.name == "atom":
            for lane in asked:
                self._atom(i, lane)
            return
        if len(asked) < WARP:
            raise FaultError(f"lanes are missing at {i.text}")
        target, _, found = i.operands[0].partition("|")
        value, by = _reader(i.operands[1]), _reader(i.operands[2])
        values = [value(lane) for lane in self._lanes]
        for number, lane in enumerate(self._lanes):
            other = number - by(lane) if "up" in i.types else by(lane)
            inside = 0 <= other < WARP
            _writer(target, 32)(lane, values[other if inside else number])
            if found:
                _writer(found, 1)(lane, int(inside))

    def _atom(self, i: Instruction, lane: _Thread) -> None:
        bits = int(i.types[-1][1:])
        base, _, more = i.operands[1].strip("[] ").partition("+")
        address = _reader(base)(lane) + int(more or 0)
        old, given = lane.load(address, bits // 8), _reader(i.operands[2])(lane)
        made = old + given if "add" in i.types else (0 if old >= given else old + 1)
        self._machine.memory.forget_writers_at(address, bits // 8)
        self._machine.memory.store(address, made, bits // 8, MAX_THREADS)
        self._machine.memory.forget_writers_at(address, bits // 8)
        _writer(i.operands[0], bits)(lane, old)


def _runs(i: Instruction, lane: _Thread) -> bool:
    return i.guard is None or _register(i.guard[0])(lane) == i.guard[1]
