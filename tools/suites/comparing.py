"""Holds a recorded run of a suite against two plain ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tools.suites.reading import Run


@dataclass(slots=True)
class Difference:
    """What a recorded run has otherwise than both plain runs, which agree in it."""

    code: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # tests that fail in other words
    printed: list[str] = field(default_factory=list)  # tests that print something else
    warnings: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)  # lines of pytest's own stdout
    unsteady: list[str] = field(default_factory=list)  # tests in which plain runs differ

    def __len__(self) -> int:
        """How many there are; what differs by itself is none."""
        kinds = self.code, self.outcomes, self.failures, self.printed, self.warnings, self.output
        return sum(map(len, kinds))


def compare(plain: Run, recorded: Run, again: Run) -> Difference:
    """Return where ``recorded`` differs, and where the two plain runs differ by themselves.

    Where a run had to be killed, tests are compared that all three ended.
    """
    found = Difference()
    runs = plain, again, recorded
    if recorded.code not in (plain.code, again.code):
        found.code = [f"{plain.code} and {again.code} plain, {recorded.code} recorded"]
    if all(each.code is not None for each in runs):
        found.warnings = _lines(*(each.warnings for each in runs))
        found.output = _lines(*(each.output for each in runs))
        names = set[str]().union(*(each.texts for each in runs))
    else:
        names = set(plain.outcomes) & set(again.outcomes) & set(recorded.outcomes)
    found.outcomes = _unlike(names, *(each.outcomes for each in runs))
    found.failures = _unlike(names, *(each.texts for each in runs))
    found.printed = _unlike(names, *(each.printed for each in runs))
    pairs = (plain.outcomes, again.outcomes), (plain.printed, again.printed)
    found.unsteady = sorted({name for pair in pairs for name in _differing(names, *pair)})
    return found


def _differing(names: set[str], one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in names if one.get(name) != other.get(name)}


def _unlike(
    names: set[str], one: dict[str, str], other: dict[str, str], recorded: dict[str, str]
) -> list[str]:
    by_itself = _differing(names, one, other)
    return [
        f"{name}: {_tail(one.get(name))} plain, {_tail(recorded.get(name))} recorded"
        for name in sorted(_differing(names, one, recorded) - by_itself)
    ]


def _tail(text: str | None) -> str:
    return "nothing" if not text else text[-1500:]


def _lines(one: Counter[str], other: Counter[str], recorded: Counter[str]) -> list[str]:
    """Return lines that fewer or more came than in either plain run."""
    lost = (one & other) - recorded
    new = recorded - (one | other)
    return [f"- {n} x {each}" for each, n in lost.items()] + [
        f"+ {n} x {each}" for each, n in new.items()
    ]
