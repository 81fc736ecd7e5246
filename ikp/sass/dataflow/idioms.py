"""Compilers' idioms: calls that never return, 16-bit atomics, elected lanes, unread parameters,
sines.

No code behind a call of ``__assertfail`` runs, not the next assert either. The called address is a
constant, which the loader writes: its word in the constant bank 4 has a relocation that names the
function.

ptxas emulates atomics of 16 bits with 32-bit ones: the word around the 16 bits is loaded and
exchanged at an aligned address. An attribute lists those instructions, for tools that report which
address an instruction touches. With each, it has the register that holds the lower half of the true
address. So the instruction counts as a reader of that register, which inserted code must not
overwrite there.

Compilers join the atomics of a warp on one address: ``VOTE`` says which lanes are active, ``FLO``
which is the highest of them, and a comparison with ``SR_LANEID`` lets that lane alone operate.

Triton launches each kernel with two addresses behind its own arguments, of scratch memory and of a
profiler's memory. Hardly a kernel uses either: they are null then, and no instruction reads them.
So a kernel's last two parameters, if 8 bytes each and never read, can hold a buffer's address.

Sines and cosines of large numbers need many bits of 2/pi: a loop over a table, and an array in
local memory. ptxas expands that into the kernel, behind a comparison with 105615.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ikp.errors import PatchError
from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.attributes import AttributeCode
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.extra_argument import ExtraArgument
from ikp.sass.disassembly.effects import R, bit, effects, span
from ikp.sass.disassembly.listing import Instruction

_NEVER_RETURN: Final = ("__assertfail", "__assert_fail")
_REPORTS: Final = (*_NEVER_RETURN, "vprintf")
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


def reports(cubin: Cubin, flow: Flow) -> frozenset[int]:
    """Return the calls of a kernel that report a failed check, or print."""
    calls = [at for at, tos in flow.graph.jumps.calls.items() if not tos]
    return frozenset(at for at in calls if called(cubin, flow, at) in _REPORTS)


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
    each = flow.code.instructions[call]
    if each.opcode != "CALL.ABS.NOINC" or len(each.operands) != 1 or each.targets:
        return None
    load, loaded = _written_by(flow, call, each.operands[0], 2, _LOADED)
    if loaded is None or loaded[2].startswith("0x"):
        return int(loaded[2], 16) if loaded else None
    _, value = _written_by(flow, load, loaded[2], 1, _SET)
    return int(value[2], 16) if value else None


def _written_by(
    flow: Flow, at: int, register: str, words: int, form: re.Pattern[str]
) -> tuple[int, re.Match[str] | None]:
    """Return the writer of a register before an instruction, and its text; None of another form."""
    writer = _writer(flow, at, register, words)
    if writer is None:
        return at, None
    found = form.fullmatch(flow.code.instructions[writer].text)
    return writer, found if found and found[1] == register else None


def _writer(flow: Flow, before: int, register: str, count: int) -> int | None:
    """Return the last instruction of the same block that writes some registers, if unguarded."""
    code, graph = flow.code.instructions, flow.graph
    first = graph.blocks[graph.block(before)].first
    wanted = span(bit(register), count)
    for at in range(before - 1, first - 1, -1):
        if effects(code[at]).writes & wanted:
            return None if code[at].guard else at
    return None


_TOUCHES: Final = ("LD", "LDG", "LDS", "ATOM", "ATOMG", "ATOMS")


def _emulated(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Yield the place of each emulated atomic, and the register that holds its address."""
    for each in kernel.attributes:
        if each.code == AttributeCode.EMULATED_ATOMICS:
            yield from zip(each.words[::2], each.words[1::2], strict=False)


def addressed(kernel: Kernel, instructions: tuple[Instruction, ...]) -> dict[int, int]:
    """Return the register that each such instruction reads beside its operands: index -> bit.

    Raises:
        PatchError: the attribute lists other instructions.
    """
    pairs = [*_emulated(kernel)]
    if not pairs:  # as nearly always
        return {}
    known = {i.address: at for at, i in enumerate(instructions) if i.op in _TOUCHES}
    if any(place not in known or register >= R.count for place, register in pairs):
        raise PatchError(
            f"{kernel.name} lists emulated atomics where there are none: that is not known here."
        )
    return {known[place]: 1 << R.first + register for place, register in pairs}


_WORD: Final = 8
_CONSTANT: Final = re.compile(r"\bcx?\[(0x[0-9a-f]+|U?R\w+)\]\[([^\]]*)\]")
_LOADS: Final = re.compile(r"(?:U?LDC|LDCU)((?:\.\w+)*)")
_WIDTHS: Final = {".64": 8, ".128": 16}


def spare_argument(
    kernel: Kernel, code: Iterable[Instruction], size: int, base: int
) -> ExtraArgument | None:
    """Return a kernel's last two parameters as one; None where they are others, or are read.

    Args:
        kernel: the kernel.
        code: its instructions.
        size: how many bytes are needed.
        base: the offset of parameters in the constant bank 0.
    """
    last = kernel.parameters[-2:]
    if [each.size for each in last] != [_WORD, _WORD] or size > 2 * _WORD:
        return None
    first, second = last
    begin = base + first.offset
    if second.offset != first.offset + _WORD or any(
        _reads(each, begin, begin + 2 * _WORD) for each in code
    ):
        return None
    return ExtraArgument(first.ordinal, first.offset, 2 * _WORD)


def _reads(instruction: Instruction, begin: int, end: int) -> bool:
    """Whether an instruction may read some bytes of the constant bank 0."""
    width = _width(instruction.opcode)
    return any(
        _may_be(offset, begin - width, end)
        for bank, offset in _CONSTANT.findall(instruction.rest)
        if "R" in bank or int(bank, 16) == 0
    )


def _width(opcode: str) -> int:
    """Return how many bytes an instruction may read of constants."""
    load = _LOADS.fullmatch(opcode)
    if load is None:  # an operand: of 64 bits, at the most
        return _WORD
    return next((width for suffix, width in _WIDTHS.items() if suffix in load[1]), 4)


def _may_be(offset: str, before: int, end: int) -> bool:
    """Whether an offset may lie between two others; one with a register always may."""
    if "R" in offset.replace("URZ", "").replace("RZ", ""):
        return True
    at = int(offset, 16) if offset.startswith("0x") else 0
    return before < at < end


_LARGE: Final = "105615"
"""The argument of a sine, in FP32, from which on its reduction takes the slow path."""


def slow_paths(flow: Flow) -> frozenset[int]:
    """Return the blocks of a kernel that reduce large arguments of sines and cosines."""
    found, large = set[int](), set[str]()
    for at, each in enumerate(flow.code.instructions):
        if each.op == "BRA" and each.guard.lstrip("!") in large:
            found |= flow.until_joined(flow.graph.block(at))
        if each.op == "FSETP" and _LARGE in each.operands:
            large.add(each.operands[0])
        else:
            large -= {*each.operands[:2]}
    return frozenset(found)


def is_elected(flow: Flow, at: int) -> bool:
    """Whether the guard of an instruction lets one lane of a warp execute it, by a vote.

    Args:
        flow: the kernel.
        at: the instruction. The election is looked for in its basic block.
    """
    guard = flow.code.instructions[at].guard
    if not guard or "!" in guard:
        return False
    compare = _written(flow, at, guard.lstrip("@"))
    if compare is None or not _of(flow, compare).opcode.startswith("ISETP.EQ"):
        return False
    highest = (_written(flow, compare, name) for name in _of(flow, compare).operands[2:4])
    return any(one is not None and _is_vote(flow, one) for one in highest)


def _is_vote(flow: Flow, at: int) -> bool:
    """Whether an instruction finds the highest lane of a vote."""
    each = _of(flow, at)
    voted = _written(flow, at, each.operands[-1]) if each.op in ("FLO", "UFLO") else None
    return voted is not None and _of(flow, voted).op in ("VOTE", "VOTEU")


def _written(flow: Flow, at: int, name: str) -> int | None:
    """Return the last instruction of the same block before one that writes a register by name."""
    first = flow.graph.blocks[flow.graph.block(at)].first
    each = (one for one in range(at - 1, first - 1, -1) if name in _of(flow, one).operands[:1])
    return next(each, None)


def _of(flow: Flow, at: int) -> Instruction:
    return flow.code.instructions[at]
