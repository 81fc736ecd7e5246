"""``ExtraWork``: instructions of a range that serve no result, or that fewer could do, by kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_MOST: Final = 1e18


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
        return cls(_number(count), _number(parts), str(line))


def extra_of_json(said: Mapping[str, Any]) -> dict[str, ExtraWork]:
    """Return extra work by kind from its JSON object; ValueError and TypeError of others."""
    return {str(kind): ExtraWork.of_json(each) for kind, each in said.items()}


def _number(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and 0 <= number <= _MOST):
        raise ValueError(f"{value!r} is no count")
    return number
