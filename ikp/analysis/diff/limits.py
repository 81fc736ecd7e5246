"""Limits on how much a figure may grow (``"dot.p50=+3%"``), parsed and checked; and ``Compared``:
how any figure of two samples differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import compress
from typing import Final

import numpy as np

from ikp.analysis.diff._interval import Contrast, Design, contrast, mean_of
from ikp.analysis.diff._sample import FIGURES, KERNEL, NO_RANGE, SUMS, Key, Sample
from ikp.analysis.diff.difference import Limit
from ikp.errors import UsageError
from ikp.patterns import choose

_FORM: Final = re.compile(r"(?:(?P<region>.+)\.)?(?P<figure>\w+)=\+(?P<percent>\d+(?:\.\d*)?)%")


@dataclass(frozen=True, slots=True)
class ParsedLimit:
    """A parsed limit; no region means the kernel."""

    text: str
    region: str | None
    figure: str
    factor: float  # of what was before


def parse(text: str) -> ParsedLimit:
    """Read a limit.

    Raises:
        UsageError: it has another form, or names no figure that there is.
    """
    found = _FORM.fullmatch(text)
    figures = FIGURES if found and found["region"] is not None else ("duration",)
    if found is None or found["figure"] not in figures:
        raise UsageError(
            f"{text!r} is no limit: write REGION.FIGURE=+N% with one of {', '.join(FIGURES)}, as "
            "in 'dot.p50=+3%', or 'duration=+1%' for the kernel."
        )
    return ParsedLimit(text, found["region"], found["figure"], 1 + float(found["percent"]) / 100)


@dataclass(frozen=True)
class Compared:
    """Two samples, the design of their comparison, and why figures of them are unknown."""

    before: Sample
    after: Sample
    design: Design
    unknown: str  # of all times
    unknown_regions: str

    def contrast(self, key: Key, figure: str, factor: float = 1.0) -> Contrast | None:
        """Return the contrast of a figure; None where there are too few launches."""
        values = self.before.get(key, figure), self.after.get(key, figure)
        tick = max(self.before.tick, self.after.tick) if figure.startswith("p") else 0.0
        unseen = partial(self._unseen, key, figure)
        return contrast(self.design, *values, unseen, tick, factor)

    def _unseen(self, key: Key, figure: str, mean: float) -> float:
        """Return the standard error that no launch shows, of a figure of this mean."""
        allowed = self.design.allowance
        if key == KERNEL:
            return allowed.kernel * mean
        if figure == "count":
            return 0.0
        own = allowed.region * mean
        return min(own, allowed.kernel * self._residence) if figure in SUMS else own

    @cached_property
    def tested(self) -> list[Key]:
        """What gets a verdict: the regions on both sides, and the time in no range."""
        after = self.after.figures
        return [
            *(key for key in self.before.keys if key.kind == "range" and key in after),
            NO_RANGE,
        ]

    @cached_property
    def _residence(self) -> float:
        """How long a warp ran, in the mean of all launches."""
        sides = (self.before.get(KERNEL, "residence"), self.after.get(KERNEL, "residence"))
        return mean_of(np.concatenate(sides))

    def why(self, key: Key, figure: str) -> str:
        """Return why nothing is known of a figure; empty where something may be."""
        if key == KERNEL:
            return self.unknown
        return self.unknown_regions or ("" if figure == "count" else self.unknown)


def held(
    asked: Sequence[ParsedLimit], kernels: Sequence[Compared], confidence: float
) -> tuple[Limit, ...]:
    """Return the verdict on each limit, in each kernel, role and region that it names.

    All verdicts are right together with the given confidence.

    Raises:
        UsageError: a limit names a region that neither side has.
    """
    places = [(limit, kernel, key) for limit in asked for kernel, key in _places(limit, kernels)]
    outside = (1 - confidence) / max(1, len(places))
    return tuple(_verdict(limit, kernel, key, outside) for limit, kernel, key in places)


def _places(limit: ParsedLimit, kernels: Sequence[Compared]) -> list[tuple[Compared, Key]]:
    if limit.region is None:
        return [(kernel, KERNEL) for kernel in kernels]
    both = [
        (kernel, key)
        for kernel in kernels
        for key in dict.fromkeys([*kernel.before.keys, *kernel.after.keys])
        if key.kind == "range" or limit.figure == "count"
    ]
    if not both:
        raise UsageError(f"{limit.text!r}: there is no region that has been recorded.")
    wanted = choose([key.region for _, key in both], limit.region, "region")
    return [*compress(both, wanted)]


def _verdict(limit: ParsedLimit, kernel: Compared, key: Key, outside: float) -> Limit:
    found = kernel.contrast(key, limit.figure, limit.factor)
    why = kernel.why(key, limit.figure)
    facts: tuple[float | None, float | None, float | None] = (None, None, None)
    verdict = "unknown"
    if found is None:
        why = why or "there are fewer than 2 launches of it on a side"
    else:
        reach, gap = found.reach(outside), found.estimate
        verdict = "over" if gap > reach else "within" if gap <= -reach else "unknown"
        relative = found.after / found.before - 1 if found.before else None
        facts = (found.before, found.after, relative)
        if why:
            verdict = "unknown"
        elif verdict == "unknown":
            why = "launches differ among themselves by too much: record more of them"
    label = kernel.before.label
    return Limit(
        limit.text, label, key.role, key.region or "kernel", limit.figure, *facts, verdict, why
    )
