"""Calls of what an assert calls: nothing behind them is run any more, not the next assert either.

Such a call's address is a constant, which the loader writes: its place in the constant bank 4 has a
relocation that names the function.
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
        cubin: the file that it is in.
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

    Its symbol stands in the call itself, or its address in the constant bank.
    """
    if named := flow.code.instructions[at].targets:
        return named[0]
    place = _called(flow, at)
    return _functions(cubin).get(place, "") if place is not None else ""


def _behind(flow: Flow, at: int, ending: set[int]) -> bool:
    """Whether nothing leads to an instruction but calls that end the kernel."""
    graph = flow.graph
    before = graph.before[graph.block(at)]
    return bool(before) and all(graph.blocks[each].end - 1 in ending for each in before)


def _functions(cubin: Cubin) -> dict[int, str]:
    """Return which symbol's address stands where in the constant bank 4."""
    names, found = cubin.elf.symbol_names(), dict[int, str]()
    for table, entries in cubin.elf.relocations():
        if cubin.elf.sections[table.info].name == _CONSTANTS:
            found |= {int(each["offset"]): names[int(each["symbol"])] for each in entries}
    return found


def _called(flow: Flow, call: int) -> int | None:
    """Return where the address that a call goes to stands in the bank; None if that isn't plain."""
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
    """Return the instruction that registers' values come from, if it's in the same block."""
    code, graph = flow.code.instructions, flow.graph
    first = graph.blocks[graph.block(before)].first
    wanted = span(bit(register), count)
    for at in range(before - 1, first - 1, -1):
        if effects(code[at]).writes & wanted:
            return None if code[at].guard else at
    return None
