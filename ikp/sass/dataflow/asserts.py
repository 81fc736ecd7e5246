"""Calls of external functions: ``asserts`` finds those of ``__assertfail``, which never return.

No code behind such a call runs, not the next assert either. The called address is a constant, which
the loader writes: its word in the constant bank 4 has a relocation that names the function.
"""

from __future__ import annotations

import re
from typing import Final

from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.disassembly.effects import effects
from ikp.sass.disassembly.resources import bit, span

_NEVER_RETURN: Final = ("__assertfail", "__assert_fail")
_CONSTANTS: Final = ".nv.constant4"
_LOADED: Final = re.compile(r"LDC\.64 (R\d+), c\[0x4\]\[(R\d+|0x[0-9a-f]+)\]")
_SET: Final = re.compile(r"(?:MOV|IMAD\.MOV\.U32) (R\d+), (?:RZ, RZ, )?(0x[0-9a-f]+)")


def asserts(cubin: Cubin, flow: Flow) -> frozenset[int]:
    """Return the calls of a kernel that are known to end it.

    Args:
        cubin: the kernel's file.
        flow: the kernel.
    """
    ending = {at for at, name in _functions(cubin).items() if name in _NEVER_RETURN}
    unknown = [at for at, tos in flow.graph.jumps.calls.items() if not tos] if ending else []
    found: set[int] = set()
    for at in sorted(unknown):
        if _called(flow, at) in ending or _behind(flow, at, found):
            found.add(at)
    return frozenset(found)


def called(cubin: Cubin, flow: Flow, at: int) -> str:
    """Return the function that a call outside the kernel's code reaches; "" where it is unknown.

    Either the call names its symbol, or the constant bank 4 has its address.
    """
    if named := flow.code.instructions[at].targets:
        return named[0]
    offset = _called(flow, at)
    return _functions(cubin).get(offset, "") if offset is not None else ""


def _behind(flow: Flow, at: int, ending: set[int]) -> bool:
    """Whether all predecessors of an instruction's block end in calls that end the kernel."""
    graph = flow.graph
    before = graph.before[graph.block(at)]
    return bool(before) and all(graph.blocks[each].end - 1 in ending for each in before)


def _functions(cubin: Cubin) -> dict[int, str]:
    """Return the symbols whose addresses are in the constant bank 4, by offset."""
    names, found = cubin.elf.symbol_names(), dict[int, str]()
    for table, entries in cubin.elf.relocations():
        if cubin.elf.sections[table.info].name == _CONSTANTS:
            found |= {int(each["offset"]): names[int(each["symbol"])] for each in entries}
    return found


def _called(flow: Flow, call: int) -> int | None:
    """Return the offset in the bank of the address that a call goes to; None if unknown."""
    operands = flow.code.instructions[call].operands
    named = flow.code.instructions[call].targets
    if flow.code.instructions[call].opcode != "CALL.ABS.NOINC" or len(operands) != 1 or named:
        return None
    load = _writer(flow, call, operands[0], 2)
    loaded = _LOADED.fullmatch(flow.code.instructions[load].text) if load is not None else None
    if load is None or loaded is None or loaded[1] != operands[0]:
        return None
    if loaded[2].startswith("0x"):
        return int(loaded[2], 16)
    move = _writer(flow, load, loaded[2], 1)
    value = _SET.fullmatch(flow.code.instructions[move].text) if move is not None else None
    return int(value[2], 16) if value and value[1] == loaded[2] else None


def _writer(flow: Flow, before: int, register: str, count: int) -> int | None:
    """Return the last instruction of the same block that writes some registers, if unguarded."""
    code, graph = flow.code.instructions, flow.graph
    first = graph.blocks[graph.block(before)].first
    wanted = span(bit(register), count)
    for at in range(before - 1, first - 1, -1):
        if effects(code[at]).writes & wanted:
            return None if code[at].guard else at
    return None
