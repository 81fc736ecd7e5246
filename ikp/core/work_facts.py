"""Instruction counts and memory accesses of a kernel's code: parts of ``CodeFacts``, as JSON lists.

Units are the keys of ``ikp.sass.disassembly.opcodes``: ``"fma"``, ``"load.global.16"``, and others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Mix = Mapping[str, tuple[float, float, float]]
"""Unit -> instructions in one execution of a range, for one warp: those that are surely executed,
with the trips of loops that the code says; those that are at most, under conditions that are not
known; and those in loops of unknown trips, of one iteration."""


_ACCESS = re.compile(r"(load|store|atomic|copy)\.(global|shared|local)\.\d{1,3}")
_MOST = 1e18
"""The largest count or size that facts may have: any is that of one launch's machine code."""


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """A memory access of a range: what one request of a warp needs, by its lanes' addresses.

    ``cost`` counts 32-byte sectors of global memory, or cycles of shared memory; ``least`` is what
    the same bytes need where lanes are adjacent. Both are None where addresses are not known, as
    behind a look-up. ``depends`` has a letter for each thing that the address depends on: ``l``
    lanes, ``w`` the warp, ``b`` the block, ``d`` loaded data, ``i`` the iteration of the innermost
    loop around, ``p`` a parameter whose value is assumed;
    ``m``: addresses of lanes were recorded in a further run.
    """

    unit: str
    count: float  # requests in one execution of the range
    line: str  # "matmul.py:93"
    cost: float | None = None
    least: float | None = None
    addresses: int | None = None  # distinct ones of a request
    depends: str = ""
    in_loop: bool = False
    blocks_share: float | None = None  # of sectors: those that an earlier block asked for, too
    reused_share: float | None = None  # the same, of 16 blocks that divide the grid
    lanes: float = 32.0  # that are active in a request
    span: int | None = None  # bytes from the lowest to the highest address of all that is looked at
    keys: tuple[int, ...] = ()  # each of some addresses, equal for equal ones; not of unknown ones

    def to_json(self) -> list[Any]:
        """Return it as a list."""
        return [
            *(self.unit, self.count, self.line, self.cost, self.least, self.addresses),
            *(self.depends, self.in_loop, self.blocks_share, self.reused_share, self.lanes),
            self.span,
            list(self.keys),
        ]

    @classmethod
    def of_json(cls, said: list[Any]) -> AccessFacts:
        """Return it from that list.

        Raises:
            ValueError, TypeError: it is none.
        """
        unit, count, line, cost, least, addresses, depends, in_loop, *more = said
        share, reused, lanes, span, keys = more
        if not _ACCESS.fullmatch(str(unit)):
            raise ValueError(f"{unit!r} is no access")
        return cls(
            str(unit),
            size(count),
            str(line),
            _number(cost),
            _number(least),
            None if addresses is None else int(size(addresses)),
            str(depends),
            in_loop is True,
            _number(share),
            _number(reused),
            size(lanes),
            None if span is None else int(size(span)),
            tuple(map(int, keys)),
        )


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """A loop of the kernel, or the code in none: its static instruction mix, inner loops apart."""

    line: str  # "" of the code in no loop
    depth: int  # 0 of the code in no loop
    mix: Mapping[str, int] = field(default_factory=dict)


def mix_of_json(said: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Return a mix from its JSON object; ValueError and TypeError where it is none."""
    found = {}
    for unit, (once, maybe, looped) in said.items():
        if unit.startswith(("load.", "store.", "atomic.")) and not _ACCESS.fullmatch(unit):
            raise ValueError(f"{unit!r} is no access")
        found[str(unit)] = size(once), size(maybe), size(looped)
    return found


def size(value: Any) -> float:
    """Return a count or a size; ValueError and TypeError where it is none."""
    number = float(value)
    if not 0 <= number <= _MOST:
        raise ValueError(f"{value!r} is no count")
    return number


def _number(value: Any) -> float | None:
    return None if value is None else size(value)
