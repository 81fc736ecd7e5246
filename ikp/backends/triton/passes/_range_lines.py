"""Which ranges of a kernel's PTX hold which lines of its source, as the records were written."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ikp.backends.triton.passes._items import Item, Role


@dataclass(frozen=True, slots=True)
class _Span:
    """Where a range is open in the text: from one clock read to the last that ends it."""

    start: int
    stop: int
    region: str  # what its mark says of it; where that is the same, it is one range of the source


class Ranges:
    """The ranges of a text; items are meant by their places in it."""

    def __init__(self, found: list[Item]) -> None:
        self._spans = _spans(found)
        self._of_line: defaultdict[str, set[str]] = defaultdict(set)
        for span in self._spans:
            for item in found[span.start : span.stop]:
                if item.instruction is not None and item.line:
                    self._of_line[item.line].add(span.region)

    def at(self, place: int) -> set[str]:
        """Return the ranges that are open there, or closed by the clock read there."""
        return {span.region for span in self._spans if span.start < place <= span.stop}

    def of_line(self, line: str) -> set[str]:
        """Return the ranges that hold an instruction of a line of source code."""
        return self._of_line[line] if line else set()


def _spans(found: list[Item]) -> list[_Span]:
    """Return the ranges that the text opens.

    A range that is ended only further up, as in a loop that carries it, is open to the text's end.
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
        if not region[:1].isdigit():  # an id of run time: no two of them are surely one
            region = f"range at {start}"
        spans.append(_Span(start, _clock_of(found, ends[-1]) if ends else again, region))
    return spans


def _clock_of(found: list[Item], store: int) -> int:
    """Return the clock read that a store as written stands behind; of totals, the store itself."""
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
        """Return the registers that names are copies of, or copied to: any of one word the same."""
        return frozenset(map(self._root, names))

    def _root(self, name: str) -> str:
        while self._into.get(name, name) != name:
            name = self._into[name]
        return name
