"""``items``: a kernel's PTX parsed for scheduling: records, and ranges open at each item.

``Ranges`` also gives those that hold a source line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum, auto

from ikp.ptx.instructions import (
    PtxInstruction,
    Statement,
    StatementKind,
    in_assembly,
    mark_of,
    names,
    parse,
    statements,
    without_counted_lines,
)
from ikp.targets.ptx import CLOCK_MARK, END_MARK, STORE_MARK


class ItemKind(Enum):
    """The kinds of items that the pass distinguishes."""

    NOTE = auto()  # blank, comment, .loc: no instruction
    ADDRESS = auto()  # arithmetic that a clock read may pass
    OTHER = auto()  # any other instruction
    BORDER = auto()  # label, branch, call, declaration, brace: nothing crosses it
    START = auto()  # a clock read that opens a range
    END = auto()  # a clock read that closes a range
    STORE = auto()  # the store of a record


@dataclass(slots=True)
class Item:
    """Consecutive statements that move as one.

    Each has its ``.loc``, so that all items keep their source lines when some move.
    """

    role: ItemKind
    parts: list[Statement]
    writes: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    instruction: PtxInstruction | None = None
    location: Statement | None = None
    foreign: bool = False  # of inline assembly that is not ikp's
    region: str = ""  # of a store: the region in its mark
    closes: frozenset[str] = frozenset()  # of an end: its store's operands, with the start word
    ranges: frozenset[str] = frozenset()  # of an end: those open at it; else those of its line
    ready: bool = True  # of a store: its payload is not in flight where the range ends
    moved: bool = False

    @property
    def text(self) -> str:
        """The text of its statements."""
        return "".join(part.text for part in self.parts)

    @property
    def code(self) -> str:
        """The first statement without comments."""
        return self.parts[0].code

    @property
    def line(self) -> str:
        """File and line that it comes from, as ``.loc`` numbers them; "" if not known."""
        return " ".join(self.location.code.split()[1:3]) if self.location else ""


_NOTES = (StatementKind.SPACE, StatementKind.COMMENT, StatementKind.LOCATION)
_INNER = 2  # scopes around a function's body: the module's, and its own
_DECLARED = re.compile(r"([\w$%]+)\s*(?=[,;<]|$)")


def items(text: str) -> list[Item]:
    """Return the items of PTX."""
    parts = without_counted_lines(statements(text))
    foreign = in_assembly(parts)
    scopes: list[dict[str, str]] = [{}]
    made: list[Item] = []
    location, at = None, 0
    while at < len(parts):
        location = parts[at] if parts[at].kind is StatementKind.LOCATION else location
        group = _marked(parts, at)
        new = _record(group) if group else [_item(parts[at], foreign[at])]
        _enter(parts[at], scopes, len(made))
        for item in new:
            item.location = location
            if any(scopes[_INNER:]):
                item.writes, item.reads = (_scoped(n, scopes) for n in (item.writes, item.reads))
        made += new
        at += len(group) or 1
    return made


def _marked(parts: list[Statement], at: int) -> list[Statement]:
    """Return the marked block that begins here, to its end; none where none does."""
    if not mark_of(parts[at]).startswith((CLOCK_MARK, STORE_MARK)):
        return []
    for stop in range(at, len(parts)):
        if mark_of(parts[stop]) == END_MARK:
            return parts[at : stop + 1]
    return []


def _record(group: list[Statement]) -> list[Item]:
    """Split a marked block into its clock read and its store, where it has them.

    A store may also be arithmetic: that of a total, which has no clock read where it only counts.
    """
    stores = [at for at, part in enumerate(group) if mark_of(part).startswith(STORE_MARK)]
    if not stores:
        return [Item(ItemKind.START, group, writes=_target(group))]
    clock, store = group[: stores[0]], group[stores[0] :]
    reads = frozenset[str]().union(*(names(part.code) for part in store))
    region = mark_of(store[0]).removeprefix(STORE_MARK).strip()
    made = [Item(ItemKind.STORE, store, reads=reads, region=region)]
    if clock:
        made.insert(0, Item(ItemKind.END, clock, writes=_target(clock), closes=reads))
    return made


def _target(read: list[Statement]) -> frozenset[str]:
    """Return the register that a marked clock read writes."""
    found = (parse(part.code) for part in read if part.kind is StatementKind.INSTRUCTION)
    return frozenset[str]().union(*(each.writes for each in found if each))


def _item(part: Statement, foreign: bool) -> Item:
    if part.kind in _NOTES:
        return Item(ItemKind.NOTE, [part])
    made = parse(part.code) if part.kind is StatementKind.INSTRUCTION else None
    if made is None:
        return Item(ItemKind.BORDER, [part])
    role = ItemKind.ADDRESS if _may_be_passed(made) and not foreign else ItemKind.OTHER
    if made.is_border or "ikp_" in part.code:
        role = ItemKind.BORDER
    return Item(role, [part], made.writes, made.reads, made, foreign=foreign)


def _may_be_passed(made: PtxInstruction) -> bool:
    return made.is_quick and not made.guard and not made.reads_special


def _enter(part: Statement, scopes: list[dict[str, str]], number: int) -> None:
    """Open or close a scope, or note a register declared in one: it hides an outer register."""
    if part.kind is StatementKind.OPEN:
        scopes.append({})
    elif part.kind is StatementKind.CLOSE and len(scopes) > 1:
        scopes.pop()
    elif (
        part.kind is StatementKind.DIRECTIVE
        and len(scopes) > _INNER
        and part.code.startswith(".reg")
    ):
        declared = _DECLARED.findall(part.code)
        scopes[-1].update({name: f"{name}@{number}" for name in declared})


def _scoped(found: frozenset[str], scopes: list[dict[str, str]]) -> frozenset[str]:
    def own(name: str) -> str:
        inner = (scope[name] for scope in reversed(scopes[_INNER:]) if name in scope)
        return next(inner, name)

    return frozenset(map(own, found))


@dataclass(frozen=True, slots=True)
class _Span:
    """The items in which a range is open: from one clock read to the last that ends it."""

    start: int
    stop: int
    region: str  # in its mark; spans of one region are one range of the source


class Ranges:
    """The ranges of a text; an item is given by its index."""

    def __init__(self, found: list[Item]) -> None:
        self._spans = _spans(found)
        self._of_line: defaultdict[str, set[str]] = defaultdict(set)
        for span in self._spans:
            for item in found[span.start : span.stop]:
                if item.instruction is not None and item.line:
                    self._of_line[item.line].add(span.region)

    def at(self, place: int) -> set[str]:
        """Return the ranges that are open at an item, or closed by it, a clock read."""
        return {span.region for span in self._spans if span.start < place <= span.stop}

    def of_line(self, line: str) -> set[str]:
        """Return the ranges that hold an instruction of a line of source code."""
        return self._of_line[line] if line else set()


def _of_kind(found: list[Item], kind: ItemKind) -> list[int]:
    """Return where the items of a kind are."""
    return [at for at, item in enumerate(found) if item.role is kind]


def _spans(found: list[Item]) -> list[_Span]:
    """Return the ranges that the text opens.

    A range whose end is only above its start, as in a loop that carries it, is open to the text's
    end.
    """
    words = _Words(found)
    starts = [(at, found[at].writes) for at in _of_kind(found, ItemKind.START)]
    stores = [(at, words.roots(found[at].reads)) for at in _of_kind(found, ItemKind.STORE)]
    spans = []
    for start, written in starts:
        word = words.roots(written)
        again = next((at for at, other in starts if at > start and other == written), len(found))
        mine = [at for at, read in stores if word & read]
        spans.append(_span(found, start, again, mine))
    return spans


def _span(found: list[Item], start: int, again: int, stores: list[int]) -> _Span:
    """Return the range of a start, from its stores and from where it is opened again."""
    ends = [at for at in stores if start < at < again]
    region = found[(ends or stores)[0]].region if stores else ""
    if not region[:1].isdigit():  # an id known at run time: two may be different regions
        region = f"range at {start}"
    return _Span(start, _clock_of(found, ends[-1]) if ends else again, region)


def _clock_of(found: list[Item], store: int) -> int:
    """Return the clock read directly before a store; the store itself where there is none."""
    return store - 1 if store and found[store - 1].role is ItemKind.END else store


class _Words:
    """Clock words, followed through copies from register to register."""

    def __init__(self, found: list[Item]) -> None:
        self._into: dict[str, str] = {}
        for item in found:
            made = item.instruction
            if made and made.name == "mov" and len(item.writes) == len(item.reads) == 1:
                self._into[self._root(*item.writes)] = self._root(*item.reads)

    def roots(self, names: frozenset[str]) -> frozenset[str]:
        """Return one register for each word: all copies of a word have the same one."""
        return frozenset(map(self._root, names))

    def _root(self, name: str) -> str:
        while self._into.get(name, name) != name:
            name = self._into[name]
        return name
