"""A kernel's last two parameters, if 8 bytes each and never read: they can hold a buffer's address.

Triton launches each kernel with two addresses behind its own arguments, of scratch memory and of a
profiler's memory. Hardly a kernel uses either: they are null then, and no instruction reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.extra_argument import Argument
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
    return Argument(first.ordinal, first.offset, 2 * _WORD)


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
