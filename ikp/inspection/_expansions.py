"""``lines``: source lines of most instructions, what these do, and slow functions among them.

A compiler expands divisions, roots and powers into sequences with marks that nothing else has: a
conversion that rounds up (``I2F.RP``) begins the division of integers, ``FCHK``, or a comparison
with 2**126, checks a division of floats, and the slow paths are functions with known names. A power
is a logarithm and an exponential in FP32: an exponent that becomes a number, what is rounded, and
an exponent again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping

from ikp.core.code_facts import LineFacts
from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Instruction, Line
from ikp.sass.disassembly.opcodes import unit_of

_MOST = 6
"""Lines that are kept of a range, those of most instructions."""
_DIGITS = 1
_HUGE = "8.507059"
"""How the largest divisor begins, 2**126, by which PTX's div.full divides as it is."""
_WIDE = re.compile(r"_(?:div|rem)_[su]64\b")
_ROOT = re.compile(r"_sqrt_rn")


def lines(
    flow: Flow, how_often: Mapping[int, Often], what: Callable[[int], str]
) -> tuple[LineFacts, ...]:
    """Return the source lines of most instructions, with the slow functions that they calculate.

    Of inlined functions in the kernel's own file, their own lines; of others, the line that calls
    them.

    Args:
        flow: the kernel.
        how_often: how often each instruction is executed.
        what: what an instruction does, as a key of ``LineFacts.parts``.
    """
    counts: defaultdict[str, float] = defaultdict(float)
    looped: defaultdict[str, float] = defaultdict(float)
    weights: defaultdict[str, float] = defaultdict(float)
    marks: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    parts: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for at, often in how_often.items():
        each = flow.code.instructions[at]
        if each.lines and unit_of(each):
            own = own_line(each)
            line = f"{own.file}:{own.number}"
            counts[line] += often.expected
            looped[line] += often.times if often.looped else 0.0
            weights[line] += often.weight
            parts[line][what(at)] += often.weight
            if mark := _mark(each):
                marks[line][mark] += often.times
    most = sorted(weights, key=lambda line: (-weights[line], line))[:_MOST]
    return tuple(
        LineFacts(
            line,
            round(counts[line], _DIGITS),
            _functions(marks[line]),
            round(looped[line], _DIGITS),
            {
                kind: round(count, _DIGITS)
                for kind, count in sorted(parts[line].items())
                if count >= _COUNTS
            },
        )
        for line in most
    )


_COUNTS = 0.1
"""Instructions of a kind from which on a line's are kept."""


def own_line(each: Instruction) -> Line:
    """Return the line of an instruction in the kernel's own file, the innermost there."""
    last = each.lines[-1]
    return next(one for one in each.lines if one.file == last.file)


def _mark(each: Instruction) -> str:
    """Return what an instruction is a mark of; empty for none."""
    opcode = each.opcode
    if each.op == "CALL":
        text = each.text
        return "wide" if _WIDE.search(text) else "root" if _ROOT.search(text) else ""
    if each.op == "FCHK" or (each.op == "FSETP" and _HUGE in each.rest):
        return "divides"
    if each.op == "I2F" and ".RP" in opcode:
        return "integers"
    if opcode.startswith("MUFU.EX2"):
        return "exponential"
    by_op = {"I2FP": "from exponent", "I2F": "from exponent", "FRND": "rounded", "F2I": "exponent"}
    return by_op.get(each.op, "")


def _functions(marks: defaultdict[str, float]) -> dict[str, float]:
    """Return how many slow functions a line calculates, by their names."""
    wide = marks["wide"]
    found = {
        "64-bit integer division": wide,
        "integer division": max(marks["integers"] - wide, 0),
        "division": marks["divides"],
        "square root": marks["root"],
        "power": min(
            marks["from exponent"], marks["rounded"], marks["exponent"] + marks["exponential"]
        ),
    }
    return {name: float(count) for name, count in found.items() if count}
