"""What NVIDIA's assembler and disassembler make of PTX written in a test."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from ikp.sass.disassembly.tools import assemble, disassemble

_HEAD = ".version 8.8\n.target {}\n.address_size 64\n"
_LINE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/")
_SECOND = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/")


@cache
def cubin(ptx: str, target: str) -> bytes:
    """Return the machine code of PTX that has no header."""
    return assemble(_HEAD.format(target) + ptx, "the test's PTX")


@cache
def assembled(ptx: str, target: str) -> list[tuple[str, int]]:
    """Return each instruction's text and its 128 bits."""
    return read(cubin(ptx, target))


@cache
def read(code: bytes) -> list[tuple[str, int]]:
    """Return the text and the 128 bits of each instruction of a cubin."""
    made = []
    lines = disassemble(code).splitlines()
    for line, after in pairwise([*lines, ""]):
        if found := _LINE.match(line):
            high = _SECOND.match(after)
            made.append((found[1], int(high[1], 16) << 64 | int(found[2], 16)))
    return made
