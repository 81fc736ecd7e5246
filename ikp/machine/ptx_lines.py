"""Lines that machine code has wrong, and its PTX right.

Warpgroups' products: ptxas gives them other lines, but keeps their order. Inline assembly of
several lines: LLVM counts the source's line on with each of them (Triton 3.9 loads that way), so
what stands there seems to come from some lines below; the line before it is the right one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ikp.machine.sass import Code, Line

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_PART = re.compile(
    r"\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)|//\s(?P<mark>begin|end) inline asm"
    r"|\b(?P<op>wgmma\.mma_async|ld\.global)|(?P<other>\.(?:entry|func)\b)"
)

_Found = tuple[str, Line | None, Line | None]
"""An operation, its line as it is given, and as it is."""


def product_lines(code: Code, ptx: str) -> dict[int, tuple[Line, ...]]:
    """Return the line of each product, by its index; nothing where the two don't match."""
    products = [at for at, i in enumerate(code.instructions) if "GMMA" in i.op]
    lines = [right for op, _, right in _operations(ptx, code.name) if op.startswith("wgmma")]
    if len(lines) != len(products):
        return {}
    pairs = zip(products, lines, strict=True)
    return {at: (line,) if line else () for at, line in pairs}


def load_lines(code: Code, ptx: str) -> dict[Line, Line]:
    """Return wrong lines of loads -> right ones; those alone that can be told apart."""
    found: dict[Line, set[Line]] = {}
    for op, given, right in _operations(ptx, code.name):
        if op.startswith("ld") and given and right:
            found.setdefault(given, set()).add(right)
    return {given: rights.pop() for given, rights in found.items() if len(rights) == 1}


def _operations(ptx: str, kernel: str) -> Iterator[_Found]:
    files = {int(number): path for number, path in _FILE.findall(ptx)}
    entry = re.search(rf"\.entry\s+{re.escape(kernel)}\b", ptx)
    given = right = None
    inside = False
    for part in _PART.finditer(ptx, entry.end() if entry else 0):
        if part["other"]:
            return
        if part["mark"]:
            inside = part["mark"] == "begin"
        elif part["op"]:
            yield part["op"], given, right
        else:
            given = Line(files.get(int(part["file"]), ""), int(part["line"]))
            right = right if inside else given
