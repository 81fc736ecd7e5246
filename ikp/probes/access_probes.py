"""``patch_accesses``: makes a kernel whose sampled warps store lanes' addresses before accesses.

Such a kernel makes no records of time: it runs once, on copies of a launch's memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from ikp.errors import PatchError
from ikp.probes.code.access_code import AccessRegisters, Tables, WarpSample, number, probe
from ikp.probes.code.entry_code import CELL, CELL_BYTES
from ikp.probes.code.reserved_registers import Cell
from ikp.probes.patch import DETAILS, kernel_code, ours
from ikp.probes.placement.register_choice import register_counts, warps_of
from ikp.probes.points.probe_points import ProbeRegions
from ikp.sass.assembly.assembler import assemble
from ikp.sass.assembly.chips import HOPPER, chip_of
from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.capacity import LANES, add_constant, set_registers
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.instruction import BYTES, branches, distances, places
from ikp.sass.dataflow.free_registers import (
    FIRST_UNIFORM,
    RESERVED,
    FreeRegisters,
    Spare,
    aligned_pairs,
)
from ikp.sass.dataflow.lane_state import LaunchValues, Shape
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.dataflow.reading import code_of
from ikp.sass.dataflow.register_handover import hands_over
from ikp.sass.disassembly.effects import UR
from ikp.sass.disassembly.memory_operands import Access, accesses
from ikp.sass.insertion.displacement import Insertion
from ikp.sass.insertion.insert import insert
from ikp.verifier.declared import Declared
from ikp.verifier.verify import verify

MOST_BYTES: Final = 48 << 20
"""The largest buffer: copies of it go through memory that two processes share."""
_BLOCKS: Final = 4
_MOST_CAPACITY: Final = 32 * 64
_MOST_OFFSET: Final = 1 << 23
"""The constant in an address is below this."""
_ENTRY_REGISTERS: Final = 6
_PARAMETERS: Final = 0x210
"""Where parameters begin in the constant bank of sm_90."""


@dataclass(frozen=True, slots=True)
class AccessSite:
    """One recorded access: the instruction, and where its source is."""

    index: int  # of the instruction in the plain kernel
    text: str
    access: Access
    lines: tuple[tuple[str, int], ...]  # of the source, the innermost inlined function first
    range: str  # the innermost region of the code around it; "" where there is none


@dataclass(frozen=True, slots=True)
class AddressPatch:
    """A kernel with address probes, and the layout of what they store."""

    cubin: bytes
    sites: tuple[AccessSite, ...]
    sample: WarpSample
    tables: Tables
    left_out: tuple[tuple[str, str], ...]  # accesses that are not recorded, and why
    declared: Declared


@dataclass(frozen=True, slots=True)
class _FoundAccesses:
    index: int
    access: Access
    ground: AccessRegisters
    scoreboard: int


def patch_accesses(
    cubin: bytes,
    name: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    *,
    detail: str = "loops",
    ptx: str = "",
    values: Sequence[tuple[int, bytes]] | None = None,
) -> AddressPatch:
    """Insert address probes into a kernel.

    Args:
        cubin: the file that the compiler wrote.
        name: the kernel's name in it.
        grid: blocks of the launch.
        block: threads of a block.
        detail: which ranges the kernel is recorded with, for the names of those around accesses.
        ptx: the kernel's PTX, for the same names.
        values: of the launch's parameters, by their offset: then a kernel is refused whose code
            says all trips and addresses.

    Raises:
        PatchError: the kernel, or its chip, is not known well enough; or it has no access that can
            be recorded.
        InspectError: there is no disassembler, or it refuses the file.
    """
    kernel = (file := Cubin.read(cubin)).kernel(name)
    if (chip := chip_of(file.sm, kernel)) is not HOPPER:
        raise PatchError(
            f"address probes are made for {HOPPER.name}, and {name} is for {chip.name}."
        )
    code = kernel_code(file, kernel, code_of(cubin, file, name))
    if values is not None and not _leaves_open(code.flow, grid, block, values):
        raise PatchError(f"the code of {name} says how often its loops go round, and where.")
    before = kernel.registers
    warps = warps_of(math.prod(block))
    counts = [before] if hands_over(code.flow) else register_counts(before, warps, chip)
    count = counts[-1]
    free = FreeRegisters(code, count - RESERVED)
    kept = _reserved(free, name)
    instructions = code.flow.code.instructions
    found, left_out = _found(free, kept, _in_collectives(file, name))
    if not found:
        why = f", and {left_out[0][0]} is left out: {left_out[0][1]}" if left_out else ""
        raise PatchError(f"{name} has no access to memory by lane that can be recorded{why}.")
    sample, tables = _layout(len(found), grid, block)
    cell = Cell(3, add_constant(file, CELL, CELL_BYTES))
    added = [_entry(free, sample, kept[0], name)]
    for number_, each in enumerate(found):
        steps = probe(each.access, number_, tables, each.ground, cell)
        added.append(Insertion(each.index, tuple(assemble(steps, each.scoreboard))))
    if count > before:
        set_registers(file, name, count)
    moved = insert(file, name, added)
    inserted = tuple(ours(moved, moved.count))
    declared = Declared(
        *(name, count, inserted, None, cell.bank, cell.offset, CELL_BYTES), watches=True
    )
    patched = file.write()
    verify(cubin, patched, code.flow.code, declared)
    around = _around(code.flow, detail, ptx, block[0] % LANES == 0)
    sites = tuple(
        AccessSite(
            each.index,
            instructions[each.index].text,
            each.access,
            tuple((line.file, line.number) for line in instructions[each.index].lines),
            around.get(each.index, ""),
        )
        for each in found
    )
    return AddressPatch(patched, sites, sample, tables, tuple(left_out), declared)


def _leaves_open(
    flow: Flow,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    values: Sequence[tuple[int, bytes]],
) -> bool:
    """Whether data decide how often some loop goes round, or where some access is."""
    shape = Shape(block, grid, 1, 1, arguments=tuple(values))
    known = LaneValues(flow, LaunchValues(shape, shape.parameters(_PARAMETERS), _PARAMETERS))
    some = (at for at, each in enumerate(flow.code.instructions) if accesses(each))
    return any(known.trips(each.header) is None for each in flow.loops) or any(
        known.address(at).bits is None for at in some
    )


def _around(flow: Flow, detail: str, ptx: str, rows: bool) -> dict[int, str]:
    """Return the name of the smallest region around each instruction that has one."""
    places = ProbeRegions(flow, ptx, rows=rows)
    names = dict[int, str]()
    sized = []
    for place in places.at(DETAILS[detail]):
        if place.ends:
            inside = set(places.regions.inside(place.start, place.ends, place.within))
            sized.append((len(inside), place.name, inside))
    for _, name, inside in sorted(sized, key=lambda each: -each[0]):
        names |= dict.fromkeys(inside, name)
    return names


def _reserved(free: FreeRegisters, name: str) -> tuple[int, int | None]:
    """Return the uniform registers for a warp's number, and for a descriptor; reserve them.

    None in place of the descriptor's: each probe takes some that are free at its place.

    Raises:
        PatchError: none is free.
    """
    unused = free.unused_uniform
    if not unused:
        raise PatchError(
            f"{name} uses all its uniform registers; address probes need one that it never names."
        )
    pair = next(iter(aligned_pairs(unused)), None)
    others = [each for each in unused if pair is None or each not in (pair, pair + 1)]
    if not others:
        others, pair = [unused[0]], None
    kept = [others[0], *([] if pair is None else (pair, pair + 1))]
    free.reserve(UR.first + each for each in kept)
    return others[0], pair


def _found(
    free: FreeRegisters, kept: tuple[int, int | None], inside: Collection[int]
) -> tuple[list[_FoundAccesses], list[tuple[str, str]]]:
    """Return the accesses that get a probe; and the others, with why they get none.

    Args:
        free: the kernel's free registers.
        kept: the reserved registers.
        inside: instructions that other lanes than a probe's may run.
    """
    found, left_out = list[_FoundAccesses](), list[tuple[str, str]]()
    for index, instruction in enumerate(free.liveness.flow.code.instructions):
        made = accesses(instruction)
        if isinstance(made, str):
            left_out.append((instruction.text, made))
            continue
        for access in made:
            ground = "other lanes run it" if index in inside else _ground(free, index, access, kept)
            if isinstance(ground, str):
                left_out.append((instruction.text, ground))
            else:
                found.append(_FoundAccesses(index, access, *ground))
    return found, left_out


def _ground(
    free: FreeRegisters, index: int, access: Access, kept: tuple[int, int | None]
) -> tuple[AccessRegisters, int] | str:
    """Return registers and a scoreboard for a probe; else why there is none."""
    spare, (slot, descriptor) = free.waited(index), kept
    if not spare.scoreboards:
        return "no scoreboard is free there"
    if descriptor is None:
        descriptor = _pair(spare.uniform_registers)
    if descriptor is None:
        return "too few uniform registers are free there"
    asked = dict(access.conditions)
    predicate = next((each for each in reversed(spare.predicates) if each not in asked), None)
    found = next(_threads_own(spare, 1 + (predicate is None)), None)
    if found is None:
        return "too few registers are free there"
    quad, pair, rest = found
    if predicate is not None:
        made = AccessRegisters(slot, descriptor, quad, pair, rest[0], predicate)
        return made, spare.scoreboards[-1]
    lent = next(each for each in range(6, -1, -1) if each not in asked)
    made = AccessRegisters(slot, descriptor, quad, pair, rest[0], lent, rest[1])
    return made, spare.scoreboards[-1]


def _pair(uniform: Sequence[int]) -> int | None:
    """Return the first register of a free pair of uniform registers; None where there is none."""
    return next((each for each in aligned_pairs(uniform) if each >= FIRST_UNIFORM), None)


def _threads_own(spare: Spare, need: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yield four registers in a row, a pair apart from them, and the rest: as many as needed."""
    for quad, pair in product(reversed(spare.quads), reversed(spare.pairs)):
        ours_ = {*range(quad, quad + 4), pair, pair + 1}
        rest = [each for each in reversed(spare.registers) if each not in ours_]
        if pair // 4 != quad // 4 and len(rest) >= need:
            yield quad, pair, rest


def _in_collectives(file: Cubin, name: str) -> set[int]:
    """Return the instructions in bodies of collectives, where nothing may be inserted."""
    kernel = file.kernel(name)
    words = kernel.words
    begin = places(words, file.sm, name).collectives
    ends = begin + 1 + distances(words[begin], branches(file.sm)) // BYTES
    return {
        at
        for first, end in zip(begin.tolist(), ends.tolist(), strict=True)
        for at in range(first + 1, end)
    }


def _entry(free: FreeRegisters, sample: WarpSample, slot: int, name: str) -> Insertion:
    spare = free.entering
    registers = spare.registers[-_ENTRY_REGISTERS:]
    if len(registers) < _ENTRY_REGISTERS or not (spare.predicates and spare.scoreboards):
        raise PatchError(f"too few registers are free at the entry of {name}.")
    steps = number(sample, slot, registers, spare.predicates[-1])
    return Insertion(0, tuple(assemble(steps, spare.scoreboards[-1])), skipped=True)


def _layout(
    count: int, grid: tuple[int, int, int], block: tuple[int, int, int]
) -> tuple[WarpSample, Tables]:
    """Return which warps record so many accesses, and how many entries each may store.

    Raises:
        PatchError: one block takes more than the largest buffer.
    """
    bits = max(0, math.floor(math.log2(math.prod(grid) / _BLOCKS)))
    while (sample := WarpSample(grid, block, bits)).blocks:
        capacity = min(
            *(_MOST_CAPACITY, (MOST_BYTES // (sample.slots * count) - 16) // 16),
            (_MOST_OFFSET // count - 16) // 16,
        )
        if capacity >= 32:
            return sample, Tables(count, sample.slots, capacity // 32 * 32)
        if sample.blocks == 1:
            break
        bits += 1
    raise PatchError(
        f"{count} accesses of {sample.warps} warps do not fit in {MOST_BYTES >> 20} MiB."
    )
