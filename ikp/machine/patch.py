"""A kernel's own machine code, with records put into it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final, TypeAlias

from ikp.core import abi
from ikp.core.abi import Language
from ikp.core.regions import region_id
from ikp.errors import PatchError
from ikp.machine import forms, records
from ikp.machine.assembler import Step, assemble
from ikp.machine.attributes import Code as Attribute
from ikp.machine.capacity import add_constant, set_registers
from ikp.machine.cubin import Cubin, Kernel
from ikp.machine.insert import OnEdge, insert
from ikp.machine.liveness import Liveness
from ikp.machine.reading import read
from ikp.machine.records import CELL, CELL_BYTES, Frame
from ikp.machine.resources import UR, R
from ikp.machine.sass import Instruction
from ikp.machine.shift import Before
from ikp.machine.spots import Loop, Spot, Way, loops

DETAILS: Final = ("kernel", "loops")
_RESERVED = 2
"""Registers that a kernel's number counts and its code may not use."""
_LANES = 32


@dataclass(frozen=True, slots=True)
class Patch:
    """A patched cubin, and what is recorded in it.

    ``warps`` is how many a block has. ``notes`` say what is not recorded, and what that costs.
    """

    cubin: bytes
    names: tuple[str, ...]
    warps: int
    registers: tuple[int, int]  # of a thread: before, and now
    notes: tuple[str, ...] = ()

    @staticmethod
    def fits(slot_bytes: int) -> bool:
        """Return whether a slot of so many bytes can hold a record."""
        return slot_bytes >= abi.min_slot_bytes(abi.OverflowMode.STOP)


def patch(
    cubin: bytes, name: str, *, detail: str = "loops", language: Language = Language.OTHER
) -> Patch:
    """Put records into a kernel of a cubin.

    Args:
        cubin: the file that the compiler wrote.
        name: the kernel.
        detail: "kernel" records how long it runs, "loops" also each loop and iteration.
        language: what it was written in.

    Raises:
        PatchError: the kernel, or its chip, is not known well enough.
        InspectError: there is no disassembler, or it refuses the file.
    """
    file = Cubin.read(cubin)
    kernel = file.kernel(name)
    if file.sm != _SM:
        raise PatchError(f"{name} is for {file.arch}: records are known for sm_{_SM} alone.")
    code = next((each for each in read(cubin) if each.flow.code.name == name), None)
    if code is None:
        raise PatchError(f"the disassembler shows no code of {name}.")
    plan = _planned(code, detail)
    frame, count = _frame(kernel, code, plan)
    frame = replace(frame, cell=add_constant(file, CELL, CELL_BYTES), warps=_warps(kernel))
    if frame.warps is None:
        raise PatchError(f"{name} doesn't say how many threads a block has (.reqntid).")
    before = kernel.registers
    if count > before:
        set_registers(file, name, count)
    added, edges = _written(plan, frame, code, kernel, language)
    insert(file, name, added, edges)
    return Patch(file.write(), tuple(plan.names), frame.warps, (before, count), tuple(plan.notes))


_SM = 90

_Action: TypeAlias = tuple[int, str, int, int]
"""What is done at a spot: its rank there, "begin", "end" or "again", a register, a region."""


@dataclass(slots=True)
class _Plan:
    """What is recorded where. Registers go by their number among those that are kept."""

    names: list[str]
    actions: dict[Spot, list[_Action]] = field(default_factory=dict)
    kept: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, spots: Iterable[Spot], *action: object) -> None:
        for spot in spots:
            self.actions.setdefault(spot, []).append(action)  # type: ignore[arg-type]


def _planned(code: Liveness, detail: str) -> _Plan:
    plan = _Plan([code.flow.code.name])
    for loop in loops(code.flow) if detail != "kernel" else ():
        if isinstance(loop, str):
            plan.notes.append(f"{loop} is not recorded: no record can stand where it is entered.")
        else:
            _add_loop(plan, code, loop)
    return plan


def _add_loop(plan: _Plan, code: Liveness, loop: Loop) -> None:
    where = _where(code, loop.last)
    whole, turn = f"loop{where}", f"iteration{where}"
    plan.names += [whole, turn]
    first, second = 2 * loop.depth, 2 * loop.depth + 1
    plan.kept = max(plan.kept, second + 1)
    out, on = -loop.depth, 1000 + loop.depth
    plan.add(loop.breaks, out, "end", second, region_id(turn))
    plan.add((*loop.breaks, *loop.leaves), out, "end", first, region_id(whole))
    plan.add(loop.turns, 500, "again", second, region_id(turn))
    plan.add(loop.entries, on, "begin", first, second)


def _where(code: Liveness, at: int) -> str:
    lines = code.flow.code.instructions[at].lines
    return f" @{PurePath(lines[0].file).name}:{lines[0].number}" if lines else ""


def _frame(kernel: Kernel, code: Liveness, plan: _Plan) -> tuple[Frame, int]:
    """Return the registers for the records, and how many a thread then has."""
    first = -(-(kernel.registers - _RESERVED) // 4) * 4
    cursor, kept = first + 4, first + 6
    last = kept + max(plan.kept, 2)
    if last > R.count - _RESERVED:
        raise PatchError(
            f"{kernel.name} has {kernel.registers} registers for each thread: there are none left "
            "for records."
        )
    uniform = -(-(_highest(code.used, UR.first, UR.count) + 1) // 2) * 2
    if uniform + records.UNIFORMS > _MOST_UNIFORM:
        raise PatchError(f"{kernel.name} leaves no uniform registers for records.")
    frame = Frame(cursor, first, kept, 0, uniform, _scoreboard(code, plan), 0)
    return frame, last + _RESERVED


_MOST_UNIFORM = 63


def _highest(members: int, first: int, count: int) -> int:
    return (members >> first & (1 << count) - 1).bit_length() - 1


def _scoreboard(code: Liveness, plan: _Plan) -> int:
    """Return the scoreboard that is held at the fewest of the records' places."""
    flying = in_flight(code)
    places = [spot.at for spot in plan.actions] or [0]
    held = [sum(flying[at] >> board & 1 for at in places) for board in range(6)]
    best = min(range(6), key=held.__getitem__)
    if held[best]:
        plan.notes.append(
            f"{held[best]} of {len(places)} records wait for what the kernel has in flight."
        )
    return best


def in_flight(code: Liveness) -> list[int]:
    """Return the scoreboards that may be held before each instruction, as masks."""
    controls, graph = code.flow.code.controls, code.flow.graph
    taken = [
        (1 << int(w) if w < 6 else 0) | (1 << int(r) if r < 6 else 0)
        for w, r in zip(controls.writes, controls.reads, strict=True)
    ]
    waits = [int(mask) for mask in controls.waits]
    entering = [0] * len(graph.blocks)
    before = [0] * len(taken)
    work = list(graph.order)
    while work:
        number = work.pop(0)
        now = entering[number]
        block = graph.blocks[number]
        for at in range(block.first, block.end):
            before[at] = now
            now = now & ~waits[at] | taken[at]
        for to in graph.after[number]:
            if now & ~entering[to]:
                entering[to] |= now
                work.append(to)
    return before


def _warps(kernel: Kernel) -> int | None:
    for each in kernel.attributes:
        if each.code == Attribute.REQNTID:
            x, y, z = each.words
            return -(-x // _LANES) if y == z == 1 else None
    return None


def _written(
    plan: _Plan, frame: Frame, code: Liveness, kernel: Kernel, language: Language
) -> tuple[list[Before], list[OnEdge]]:
    """Return the words of all records."""
    added = [Before(0, tuple(assemble(records.entry(frame, language), frame.scoreboard)), True)]
    edges = []
    for spot, actions in plan.actions.items():
        at = _landing(code, spot)
        words = _words(replace(frame, predicate=_predicate(code, at)), sorted(actions))
        if spot.way is Way.TAKEN:
            edges.append(OnEdge(spot.at, words))
        else:
            added.append(Before(spot.at, words, spot.way is Way.FALLEN))
    for at, instruction in enumerate(code.flow.code.instructions):
        if instruction.op == "EXIT" and not instruction.never_runs:
            here = replace(frame, predicate=_predicate(code, at))
            steps = records.leave(here, records.range_tag(region_id(plan.names[0])))
            steps = [*_unless_staying(instruction, len(steps)), *steps]
            added.append(Before(at, tuple(assemble(steps, frame.scoreboard))))
    return added, edges


def _unless_staying(leaving: Instruction, steps: int) -> list[Step]:
    """Have threads that an EXIT lets go on skip so many steps."""
    guard = leaving.guard
    if not guard:
        return []
    if guard.lstrip("!")[0] != "P":
        raise PatchError(f"an EXIT has the guard {guard}, which is not known here.")
    return [forms.skip(steps).when(int(guard[-1]), holds=guard.startswith("!"))]


def _landing(code: Liveness, spot: Spot) -> int:
    """Return the instruction that runs behind what stands at a spot."""
    if spot.way is not Way.TAKEN:
        return spot.at
    return next(to for to in code.flow.after[spot.at] if to != spot.at + 1)


def _predicate(code: Liveness, at: int) -> int:
    free = [number for number, live in enumerate(code.predicates[at]) if not live]
    if not free:
        raise PatchError(f"no predicate is free at instruction {at}.")
    return free[-1]


def _words(frame: Frame, actions: Sequence[_Action]) -> tuple[int, ...]:
    steps: list[Step] = []
    for _, what, register, other in actions:
        kept = frame.address + register
        if what == "begin":
            steps += [*records.keep_start(kept), forms.copy(frame.address + other, kept)]
        else:
            tag = records.range_tag(other)
            steps += records.end_kept(frame, tag, kept, again=what == "again")
    return tuple(assemble(steps, frame.scoreboard))
