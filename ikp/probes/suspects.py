"""Copies of a kernel to time it without its suspects, the instructions of one kind and line.

They are taken out, or, where they are loads, redirected to one line. What such a copy computes is
wrong. So it runs on copied memory alone, and a suspect is refused where wrong values could make the
kernel hang or fault.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ikp.errors import PatchError
from ikp.probes.code.entry_code import CELL, CELL_BYTES
from ikp.probes.patch import kernel_code
from ikp.probes.placement.register_choice import register_counts, warps_of
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import NOP, assemble
from ikp.sass.assembly.chips import HOPPER, chip_of
from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.capacity import add_constant, set_registers
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.free_registers import RESERVED, FreeRegisters, aligned_pairs
from ikp.sass.dataflow.influence import Influence
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.reading import code_of
from ikp.sass.dataflow.register_handover import hands_over
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.memory_operands import (
    ATOMIC,
    GLOBAL,
    LOAD,
    SHARED,
    STORE,
    accesses,
)
from ikp.sass.insertion.displacement import Insertion
from ikp.sass.insertion.insert import insert

LINE_BYTES: Final = 128
"""The memory that redirected loads read, zeroed."""
BARRIER: Final = "barrier"
REMOVED, REDIRECTED = "removed", "redirected to one line"
_NEVER: Final = 0xF << 12
"""The guard ``!PT``, which never holds: compilers write it for padding, too."""
_OWN_AT: Final = 24
_OWN: Final = 0xFF << _OWN_AT
_BEYOND: Final = 0xFFFFFF << 40
_COPY_BEYOND: Final = 0xFFF << 32
"""The fields of the register and of the constant in a global address: of LDG, and of LDGSTS."""
_PLAIN_ADDRESS: Final = re.compile(r"desc\[UR\d+\]\[R\d+\.64(?:\+-?0x[0-9a-f]+)?\]")


@dataclass(frozen=True, slots=True)
class Suspect:
    """Instructions of one kind and source line."""

    kind: str  # "barrier", "load", "store" or "atomic"
    line: str  # "/src/matmul.py:93"; "" where not known
    members: tuple[int, ...]  # their indices
    depth: int  # loops around the first of them


@dataclass(frozen=True, slots=True)
class Trial:
    """A copy of a kernel without a suspect, or why there is none."""

    suspect: Suspect
    cubin: bytes
    how: str = ""  # "removed" or "redirected to one line"
    refused: str = ""


def trials(
    cubin: bytes, name: str, block: tuple[int, int, int], most: int
) -> tuple[list[Trial], int]:
    """Return copies of a kernel without its suspects, and how many suspects it has.

    Args:
        cubin: the file that the compiler wrote.
        name: the kernel's name in it.
        block: threads of a block.
        most: how many suspects are tried: those in the most loops first.

    Raises:
        PatchError: the kernel, or its chip, is not known well enough.
        InspectError: there is no disassembler, or it refuses the file.
    """
    file = Cubin.read(cubin)
    kernel = file.kernel(name)
    if chip_of(file.sm, kernel) is not HOPPER:
        raise PatchError(f"instructions are taken out for {HOPPER.name} alone.")
    code = kernel_code(file, kernel, code_of(cubin, file, name))
    found = suspects(code.flow)
    return [_trial(cubin, name, code, each, block) for each in found[:most]], len(found)


def suspects(flow: Flow) -> list[Suspect]:
    """Return the suspects of a kernel, those in the most loops first, then by their number."""
    members = defaultdict[tuple[str, str], list[int]](list)
    for at, instruction in enumerate(flow.code.instructions):
        kind = _kind(instruction)
        if kind:
            line = instruction.lines[0] if instruction.lines else None
            members[kind, f"{line.file}:{line.number}" if line else ""].append(at)
    made = [
        Suspect(kind, line, tuple(found), max(_depth(flow, at) for at in found))
        for (kind, line), found in members.items()
    ]
    return sorted(made, key=lambda each: (-each.depth, -len(each.members), each.members))


def _depth(flow: Flow, at: int) -> int:
    """Return how many loops are around an instruction."""
    return len(flow.loops_around(at))


def _kind(instruction: Instruction) -> str:
    """Return the kind of suspect that an instruction is; "" for none."""
    if instruction.never_runs:
        return ""
    if instruction.op == "BAR" and ".SYNC" in instruction.opcode:
        return BARRIER
    found = accesses(instruction)
    if isinstance(found, str) or not found or found[0].space != GLOBAL:
        return ""
    return {LOAD: LOAD, STORE: STORE, ATOMIC: ATOMIC}.get(found[0].kind, LOAD)


def _trial(
    cubin: bytes, name: str, code: Liveness, suspect: Suspect, block: tuple[int, int, int]
) -> Trial:
    if why := _why_not(code.flow, suspect):
        return Trial(suspect, b"", refused=why)
    file = Cubin.read(cubin)
    pair = _pair(file, name, code, block) if suspect.kind == LOAD else None
    instructions = code.flow.code.instructions
    plain = all(_redirectable(instructions[at]) for at in suspect.members)
    if pair is None or not plain:
        _edit(file, name, suspect.members, _NEVER, _NEVER)
        return Trial(suspect, file.write(), REMOVED)
    count, register, board = pair
    for at in suspect.members:
        copies = instructions[at].op == "LDGSTS"
        beyond = _COPY_BEYOND if copies else _BEYOND
        _edit(file, name, (at,), _OWN | beyond, register << _OWN_AT)
    cell = add_constant(file, CELL, CELL_BYTES)
    steps = [forms.load_constant(register, 3, cell, pair=True), NOP.after(1 << board)]
    insert(file, name, [Insertion(0, tuple(assemble(steps, board)), skipped=True)])
    if count > file.kernel(name).registers:
        set_registers(file, name, count)
    return Trial(suspect, file.write(), REDIRECTED)


def _why_not(flow: Flow, suspect: Suspect) -> str:
    """Return why a suspect is not taken out; "" where that can neither hang nor fault."""
    opcodes = {each.opcode for each in flow.code.instructions}
    if suspect.kind == BARRIER:
        if any(each.startswith("SYNCS") for each in opcodes):
            return "mbarriers are made ready before a barrier, and others wait for them."
        if any(each.startswith("BAR.ARV") for each in opcodes):
            return "warps that only arrive count on others that wait."
    spaces = {
        BARRIER: frozenset((SHARED, GLOBAL)),
        LOAD: frozenset((SHARED,)) if _copies(flow, suspect.members) else frozenset[str](),
        STORE: frozenset((GLOBAL,)),
        ATOMIC: frozenset((GLOBAL,)),
    }[suspect.kind]
    sources = frozenset(suspect.members) if suspect.kind in (LOAD, ATOMIC) else frozenset[int]()
    why = Influence(flow).why_unsafe(sources, spaces)
    return why and f"{why}."


def _copies(flow: Flow, members: Sequence[int]) -> bool:
    return any(flow.code.instructions[at].op == "LDGSTS" for at in members)


def _redirectable(instruction: Instruction) -> bool:
    """Whether an instruction's address is a pair of registers and a constant, and it may be cached.

    A strong load (volatile, or of an atomic) asks L2 each time: of one line, blocks would wait.
    """
    place = instruction.operands[1] if len(instruction.operands) > 1 else ""
    known = instruction.op in ("LDG", "LDGSTS") and bool(_PLAIN_ADDRESS.fullmatch(place))
    return known and ".STRONG" not in instruction.opcode


def _pair(
    file: Cubin, name: str, code: Liveness, block: tuple[int, int, int]
) -> tuple[int, int, int] | None:
    """Return a count of registers, a pair that is never named, and a scoreboard; None: no pair.

    An SM has room for as many blocks as of the plain kernel.
    """
    before = file.kernel(name).registers
    warps = warps_of(block[0] * block[1] * block[2])
    count = before if hands_over(code.flow) else register_counts(before, warps, HOPPER)[0]
    free = FreeRegisters(code, count - RESERVED)
    unused, boards = free.unused_own, free.entering.scoreboards
    pairs = aligned_pairs(unused)
    return (count, pairs[-1], boards[-1]) if pairs and boards else None


def _edit(file: Cubin, name: str, members: Sequence[int], bits: int, value: int) -> None:
    """Set some bits in the lower half of instructions."""
    kernel = file.kernel(name)
    words = kernel.words.copy()
    for at in members:
        words[at, 0] = np.uint64(int(words[at, 0]) & ~bits | value)
    kernel.text.data = words.tobytes()
