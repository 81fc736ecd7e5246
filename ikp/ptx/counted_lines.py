"""Removes the ``.loc`` directives inside inline assembly of compiled PTX: their lines are wrong.

LLVM counts: it says that the n-th line of an assembly block comes from the n-th source line after
the block's own. Code behind the block without a line of its own then seems to come from there, too.
Debuggers, profilers and ``ikp inspect`` would show the wrong lines.
"""

from __future__ import annotations

from ikp.ptx.statements import Kind, Statement, in_assembly


def without_counted_lines(parts: list[Statement]) -> list[Statement]:
    """Return the statements without the locations inside assembly blocks: the block's own holds."""
    counted = in_assembly(parts)
    return [
        part
        for part, inside in zip(parts, counted, strict=True)
        if not (inside and part.kind is Kind.LOCATION)
    ]
