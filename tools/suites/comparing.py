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


def compare(plain: Run, again: Run, recorded: Run) -> Difference:
    """Return where ``recorded`` differs, and where the two plain runs differ by themselves."""
    found = Difference()
    if recorded.code not in (plain.code, again.code):
        found.code = [f"{plain.code} and {again.code} plain, {recorded.code} recorded"]
    found.outcomes = _unlike(plain.outcomes, again.outcomes, recorded.outcomes)
    found.failures = _unlike(plain.texts, again.texts, recorded.texts)
    found.printed = _unlike(plain.printed, again.printed, recorded.printed)
    found.warnings = _lines(plain.warnings, again.warnings, recorded.warnings)
    found.output = _lines(plain.output, again.output, recorded.output)
    pairs = (plain.outcomes, again.outcomes), (plain.printed, again.printed)
    found.unsteady = sorted({name for pair in pairs for name in _differing(*pair)})
    return found


def _differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def _unlike(one: dict[str, str], other: dict[str, str], recorded: dict[str, str]) -> list[str]:
    by_itself = _differing(one, other)
    return [
        f"{name}: {_tail(one.get(name))} plain, {_tail(recorded.get(name))} recorded"
        for name in sorted(_differing(one, recorded) - by_itself)
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
