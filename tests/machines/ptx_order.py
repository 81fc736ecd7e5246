"""Whether one PTX text is a valid rearrangement of another: a check that knows no scheduler.

It compares every pair of lines whose order changed: neither may read or write what the other
writes, and none may be a border. Lines that say nothing to the machine (comments, ``.loc``) are
compared as a multiset only. A record's store, from its mark to its end, counts as one line.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

_STATEMENT = re.compile(r"(?:\{[^{}]*\}|[^;{}])+;")
_REGISTER = re.compile(r"%(?:p|r|rs|rd|f|fd)\d+|\bikp_\w+")
_CLOCK = re.compile(r"mov\.u32 %r\d+, %(?:clock|globaltimer_lo);")
_BORDERS = {"bra", "brx", "call", "ret", "exit", "trap"}
_WRITES_NOTHING = {"st", "bar", "red", "membar", "fence", "prefetch", "griddepcontrol", "nanosleep"}
_WRITES_ITS_FIRST = {
    "add", "sub", "mul", "mad", "and", "or", "xor", "not", "shl", "shr", "shf", "bfe", "bfi", "mov",
    "cvt", "cvta", "setp", "selp", "min", "max", "div", "rem", "lop3", "prmt", "neg", "abs", "popc",
    "clz", "bfind", "brev", "sad", "slct", "ld", "shfl",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line as the machine sees it."""

    text: str
    opcodes: tuple[str, ...] = ()
    writes: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    border: bool = False

    @property
    def is_note(self) -> bool:
        """Whether the line says nothing to the machine."""
        return not self.opcodes and not self.border

    @property
    def is_clock(self) -> bool:
        """Whether the line is a record's clock read."""
        return _CLOCK.fullmatch(self.text.strip()) is not None

    @property
    def is_store(self) -> bool:
        """Whether this is a record's store."""
        return self.opcodes == ("record",)


def parse(text: str) -> list[Line]:
    """Return the lines of a PTX text."""
    lines = []
    raw = iter(one_each(text).split("\n"))
    for line in raw:
        if line.startswith("// ikp.store"):
            group = [line]
            while group[-1].strip() != "// ikp.end":
                group.append(next(raw))
            whole = "\n".join(group)
            used = frozenset(_REGISTER.findall(whole))
            cursor = frozenset(name for name in used if name.startswith("ikp_"))
            lines.append(Line(whole, ("record",), cursor, used))
        else:
            lines.append(_line(line))
    return lines


def one_each(text: str) -> str:
    """Return a text in which several statements of a line have a line each."""
    made: list[str] = []
    for line in text.split("\n"):
        code = line.partition("//")[0]
        several = code.count(";") > 1
        made += re.findall(r"[^;\s][^;]*;?", line) if several else [line]
    return "\n".join(made)


def _line(raw: str) -> Line:
    text = raw.partition("//")[0].strip()
    if not text or text.startswith(".loc"):
        return Line(raw)
    if text.startswith((".", "{", "}", "$", ")")) or text.endswith(":"):
        return Line(raw, border=True)
    opcodes, writes, reads = [], set(), set()
    for statement in _STATEMENT.findall(text):
        opcode, written, read = _statement(statement.strip(" ;\t"))
        opcodes.append(opcode)
        writes |= written
        reads |= read
    border = not opcodes or any(opcode.split(".")[0] in _BORDERS for opcode in opcodes)
    return Line(raw, tuple(opcodes), frozenset(writes), frozenset(reads), border)


def _statement(text: str) -> tuple[str, set[str], set[str]]:
    """Return the opcode and the registers written and read."""
    guard: set[str] = set()
    if text.startswith("@"):
        word, text = text.split(None, 1)
        guard = set(_REGISTER.findall(word))
    opcode, *rest = text.split(None, 1)
    operands = "".join(rest)
    first = re.match(r"\{[^}]*\}|\[[^\]]*\]|[^,]*", operands)[0]  # type: ignore[index]
    target, others = set(_REGISTER.findall(first)), set(_REGISTER.findall(operands[len(first) :]))
    name = opcode.split(".")[0]
    if name in _WRITES_NOTHING:
        return opcode, set(), guard | target | others
    if name in _WRITES_ITS_FIRST:
        return opcode, target, guard | others
    return opcode, target | others, guard | target | others  # who knows


def located(text: str) -> list[tuple[str, str]]:
    """Return each line but ``.loc``, notes included without a place, with the ``.loc`` it has."""
    found, location = [], ""
    for line in one_each(text).split("\n"):
        code = line.partition("//")[0].strip()
        if code.startswith(".loc"):
            location = code
        else:
            found.append((line, location if code else ""))
    return found


def check_rearranged(before: str, after: str) -> list[tuple[Line, Line]]:
    """Return the pairs of lines whose order changed: (first before, first after).

    Raises:
        AssertionError: ``after`` has other lines than ``before``, or might do something else, or
            an instruction comes from another line of source code.
    """
    told = [Counter((line.strip(), at) for line, at in located(each)) for each in (before, after)]
    assert told[0] == told[1]
    old, new = ([line for line in parse(text) if not line.is_note] for text in (before, after))
    places = defaultdict(list)
    for at, line in reversed(list(enumerate(new))):
        places[line.text.strip()].append(at)
    # Lines of equal text do the same: the first stays the first.
    position = np.array([places[line.text.strip()].pop() for line in old], np.int64)
    swapped = np.argwhere(np.triu(position[:, None] > position[None, :], 1))
    pairs = [(old[i], old[j]) for i, j in swapped]
    for first, second in pairs:
        what = f"{first.text.strip()!r} and {second.text.strip()!r} changed places"
        assert not first.border and not second.border, what
        assert not first.writes & (second.reads | second.writes), what
        assert not second.writes & first.reads, what
        assert not (first.is_clock and second.is_clock), what
    return pairs


def empty_ranges(text: str) -> set[str]:
    """Return the start words of ranges that hold no instruction but records' own."""
    lines = [line for line in parse(text) if not line.is_note]
    empty = set()
    for at, line in enumerate(lines):
        if not line.is_clock:
            continue
        (word,) = line.writes
        for later in lines[at + 1 :]:
            if later.is_store and word in later.reads:
                empty.add(word)
                break
            if not (later.is_clock or later.is_store):
                break
    return empty
