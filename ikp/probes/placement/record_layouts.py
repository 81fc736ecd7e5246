"""Layouts of a record's words in free registers: which word is in which, the best ones first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from ikp.probes.code.reserved_registers import address_at
from ikp.sass.dataflow.free_registers import Spare
from ikp.sass.disassembly.effects import R, span

_ENOUGH = 5
"""Of so many addresses, one overlaps no record's words: these are in four registers, at most."""
RecordWords: TypeAlias = tuple[int, int, int]
"""The registers of a record's tag, its start, and its end."""


def record_layouts(spare: Spare, near: bool, late: int) -> Iterator[list[RecordWords]]:
    """Yield the layouts of a record's words that leave room for their address, the best ones first.

    Each is given by the registers of its tag, its start, and its end. A store of a row reads the
    register behind them, too: none that is ``late``, which a load may have yet to write.
    """
    every = (spare.registers if near else spare.pairs)[:_ENOUGH]
    where = [address_at(each, near=near) for each in every]
    for way in kinds_of_layouts(spare.registers, spare.pairs, late):
        yield [each for each in way if not all(map(word_bits(*each).__and__, where))]


def _there(way: Iterable[RecordWords], late: int) -> list[RecordWords]:
    """Return the layouts whose stores read no register that is ``late``."""
    return [each for each in way if not (_in_a_row(*each) and late >> R.first + each[0] + 3 & 1)]


def kinds_of_layouts(
    free: tuple[int, ...], pairs: tuple[int, ...], late: int
) -> Iterator[list[RecordWords]]:
    """Yield lists of layouts of a record's words, the best kind first; see ``record_layouts``."""
    members = set(free)
    rows = [(at, at + 1, at + 2) for at in pairs if at % 4 == 0 and at + 2 in members]
    yield _there(rows, late)
    apart = [(at, at + 1, each) for at in pairs[:1] for each in free if each // 2 != at // 2]
    yield _there(apart, late)
    few = sorted(free, key=lambda each: each ^ 1 in members)  # those without a neighbour first
    yield _there(zip(few, few[1:], few[2:], strict=False), late)
    yield [(at, at + 1, at + 1) for at in pairs]
    yield [(first, second, second) for first, second in pairwise(few)]
    yield [(each, each, each) for each in free]


def word_registers(tag: int, start: int, end: int) -> Sequence[int]:
    """Return the registers of a record's words."""
    return range(tag, tag + 4) if _in_a_row(tag, start, end) else (tag, start, end)


def word_bits(tag: int, start: int, end: int) -> int:
    """Return the registers of a record's words, as bits."""
    return span(tag, 4) if _in_a_row(tag, start, end) else 1 << tag | 1 << start | 1 << end


def _in_a_row(tag: int, start: int, end: int) -> bool:
    """Whether one store takes a record's words, with the register behind them."""
    return tag % 4 == 0 and start == tag + 1 and end == tag + 2
