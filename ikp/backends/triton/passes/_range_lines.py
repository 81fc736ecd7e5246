"""``Ranges``: the ranges open at an item of a kernel's PTX, and those that hold a source line."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ikp.backends.triton.passes._items import Item, Role


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


def _spans(found: list[Item]) -> list[_Span]:
    """Return the ranges that the text opens.

    A range whose end is only above its start, as in a loop that carries it, is open to the text's
    end.
    """
    words = _Words(found)
    starts = [(at, item.writes) for at, item in enumerate(found) if item.role is Role.START]
    stores = [(at, words.roots(item.reads)) for at, item in enumerate(found)
              if item.role is Role.STORE]  # fmt: skip
    spans = []
    for start, written in starts:
        word = words.roots(written)
        again = next((at for at, other in starts if at > start and other == written), len(found))
        mine = [at for at, read in stores if word & read]
        ends = [at for at in mine if start < at < again]
        region = found[(ends or mine)[0]].region if mine else ""
        if not region[:1].isdigit():  # an id known at run time: two may be different regions
            region = f"range at {start}"
        spans.append(_Span(start, _clock_of(found, ends[-1]) if ends else again, region))
    return spans


def _clock_of(found: list[Item], store: int) -> int:
    """Return the clock read directly before a store; the store itself where there is none."""
    return store - 1 if store and found[store - 1].role is Role.END else store


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
