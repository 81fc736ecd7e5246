"""Facts of work in a range that its results don't need: excess and extra work, as JSON.

Excess is what code does more often, or wider, than its results need: swaps in loops, widened or
split operands, code of few threads, masked or repeated iterations. Extra work are instructions that
serve no result, or that fewer could do, by kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

_MOST = 1e18
"""The largest count or size that facts may have: any is that of one launch's machine code."""


@dataclass(frozen=True, slots=True)
class ExcessFacts:
    """The excess work in one execution of a range, for one warp; zeros and "" where none is known.

    ``swaps`` counts compare-and-swap operations in loops. ``widened`` counts conversions of 16-bit
    numbers to 32 bits, ``split`` the numbers that are split for products of several parts.
    ``serial`` counts instructions that, of each block, ``serial_threads`` threads alone execute.
    ``useful`` is the mean of the iterations of a loop that some condition between a block's rows
    and the loop's columns lets through, -1 where there is none. ``alone`` is the line of a loop
    that calculates from nothing but what it loads, ``again`` that of a loop that an outer one
    executes anew with the same operands.
    """

    swaps: float = 0.0
    widened: float = 0.0
    split: float = 0.0
    serial: float = 0.0
    serial_threads: int = 0
    serial_line: str = ""
    useful: float = -1.0
    alone: str = ""
    again: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what is known, by name."""
        every = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, usual) in every.items() if value != usual}

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> ExcessFacts:
        """Return it from that object; ValueError and TypeError where it is none."""
        found = {}
        for each in fields(cls):
            if each.name in said:
                found[each.name] = _checked(each.name, said[each.name], type(each.default))
        return cls(**found)


def _checked(name: str, value: object, kind: type) -> Any:
    text = isinstance(value, str)
    number = isinstance(value, (int, float)) and math.isfinite(value) and -1 <= value <= _MOST
    if (text if kind is str else number) and not isinstance(value, bool):
        return value
    raise ValueError(f"{name} of {value!r}")


NO_EXCESS: Final = ExcessFacts()


@dataclass(frozen=True, slots=True)
class ExtraWork:
    """The extra work of one kind, in one execution of a range, for one warp.

    ``count`` is how many instructions would go, ``parts`` how many things they are for: sums,
    numbers, words. ``line`` is the source line of most of them, "" where none is known.
    """

    count: float
    parts: float
    line: str = ""

    def to_json(self) -> list[Any]:
        """Return it as a list."""
        return [self.count, self.parts, self.line]

    @classmethod
    def of_json(cls, said: list[Any]) -> ExtraWork:
        """Return it from that list; ValueError and TypeError where it is none."""
        count, parts, line = said
        return cls(size(count), size(parts), str(line))


def extra_of_json(said: Mapping[str, Any]) -> dict[str, ExtraWork]:
    """Return extra work by kind from its JSON object; ValueError and TypeError of others."""
    return {str(kind): ExtraWork.of_json(each) for kind, each in said.items()}


def size(value: Any) -> float:
    """Return a count or a size; ValueError and TypeError where it is none."""
    number = float(value)
    if not 0 <= number <= _MOST:
        raise ValueError(f"{value!r} is no count")
    return number
