"""What a kernel is launched with and never reads: there it can be told where to record.

Triton launches each kernel with two addresses behind its own arguments, of scratch memory and of a
profiler's. Hardly a kernel has either: these are null then, and no instruction reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ikp.sass.cubins.added_parameter import Argument
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.disassembly.listing import Instruction

_WORD: Final = 8
_CONSTANT: Final = re.compile(r"\bcx?\[(0x[0-9a-f]+|U?R\w+)\]\[([^\]]*)\]")
_LOADS: Final = re.compile(r"(?:U?LDC|LDCU)((?:\.\w+)*)")
_WIDTHS: Final = {".64": 8, ".128": 16}


def spare_argument(
    kernel: Kernel, code: Iterable[Instruction], size: int, base: int
) -> Argument | None:
    """Return a kernel's last two parameters as one; None where they are others, or are read.

    Args:
        kernel: whose they are.
        code: its instructions.
        size: how many bytes are needed.
        base: where parameters stand in the constant bank 0.
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
    return Argument(first.ordinal, first.offset, 2 * _WORD)


def _reads(instruction: Instruction, begin: int, end: int) -> bool:
    """Whether an instruction may read some bytes of the constant bank 0."""
    width = _width(instruction.opcode)
    return any(
        _may_be(place, begin - width, end)
        for bank, place in _CONSTANT.findall(instruction.rest)
        if "R" in bank or int(bank, 16) == 0
    )


def _width(opcode: str) -> int:
    """Return how many bytes an instruction may read of constants."""
    load = _LOADS.fullmatch(opcode)
    if load is None:  # an operand: of 64 bits, at the most
        return _WORD
    return next((width for suffix, width in _WIDTHS.items() if suffix in load[1]), 4)


def _may_be(place: str, before: int, end: int) -> bool:
    """Whether a place is behind one and before another; one that a register names may be."""
    if "R" in place.replace("URZ", "").replace("RZ", ""):
        return True
    at = int(place, 16) if place.startswith("0x") else 0
    return before < at < end
