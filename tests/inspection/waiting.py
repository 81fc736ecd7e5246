"""Which ranges wait for which results, in machine code.

An SM issues a warp's instructions in order: whoever reads a result first has waited for it. So the
first instruction that reads what a load, a shuffle or the like made, on each way from there, says
in which ranges that wait stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ikp.inspection.report import KernelReport
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, work_of
from ikp.sass.disassembly.values import definitions
from tests.inspection.compiled import machine_code

LATE = (Work.LOAD, Work.ATOMIC, Work.SHARED, Work.TMEM, Work.SHUFFLE, Work.LOCAL)
_REGISTER = re.compile(r"\bU?R\d+\b")

Wait = tuple[str, frozenset[str], frozenset[frozenset[str]]]
"""An opcode, the ranges it stands in, and for each who waits for it the ranges that one is in."""


def waits(cubin: bytes, found: KernelReport) -> set[Wait]:
    """Return who waits for what in a kernel, ikp's own stores left out."""
    flow = Flow(machine_code(cubin))
    holding = ranges_of(found)
    own = {copy.store for one in found.ranges for copy in one.copies}
    made: set[Wait] = set()
    for at, instruction in enumerate(flow.code.instructions):
        results = set(definitions(instruction))
        if work_of(instruction) in LATE and results and not instruction.never_runs:
            users = _first_users(flow, at, results, own)
            inside = frozenset(holding(flow.code.instructions[user]) for user in users)
            made.add((instruction.op, holding(instruction), inside))
    return made


def ranges_of(found: KernelReport) -> Callable[[Instruction], frozenset[str]]:
    """Return the function that names the ranges an instruction stands in."""
    names: dict[int, set[str]] = {}
    for one in found.ranges:
        for copy in one.copies:
            for instruction in copy.instructions:
                names.setdefault(instruction.address, set()).add(one.name)
    return lambda instruction: frozenset(names.get(instruction.address, ()))


def _first_users(flow: Flow, at: int, results: set[str], own: set[int]) -> set[int]:
    users, seen = set(), set[int]()
    work = list(flow.after(at))
    while work:
        here = work.pop()
        if here in seen:
            continue
        seen.add(here)
        instruction = flow.code.instructions[here]
        if instruction.address not in own and results & _read(instruction):
            users.add(here)
        elif not set(definitions(instruction)) & results:
            work += flow.after(here)
    return users


def _read(instruction: Instruction) -> set[str]:
    made = definitions(instruction)
    operands = instruction.operands[1:] if made else instruction.operands
    return {name for operand in operands for name in _REGISTER.findall(operand)}
