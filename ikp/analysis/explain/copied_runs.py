"""What a trace says of a kernel's further runs on copied memory: costs of accesses, and the time
won without some instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from ikp.analysis.access_table import excess
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.verdict import AccessUse, Finding, Tried, Unknown
from ikp.core.run_figures import (
    INVALID,
    NO_ADDRESSES,
    NOT_TRIED,
    AccessFigures,
    read_addresses,
    read_tried,
)

_ACCESSES: Final = 6
_COSTLY: Final = 1.25
"""Times the least cost from which on an access is named; others of one line need no mention."""
_ATOMICS: Final = 8
"""Lanes of one address from which on an atomic is named."""
_LINE: Final = re.compile(r"([\w.]+:\d+)")
_KINDS: Final = {"barrier-skew": ("barrier",), "atomics": ("atomic",), "flag-wait": ("load",)}
_OTHERS: Final = ("load", "store")


def _is_costly(each: AccessFigures) -> bool:
    """Whether requests take more than they need, or many lanes operate on one address."""
    crowded = each.kind == "atomic" and (each.same_address or 0) >= _ATOMICS
    return crowded or (each.cost or 0) >= _COSTLY * max(each.least or 0, 1)


def accesses_of(launch: Prepared) -> tuple[AccessUse, ...]:
    """Return the accesses that cost more than they need, by their lanes' addresses: worst first."""
    found = read_addresses(launch.trace.provenance, launch.launch.label)
    if found is None:
        return ()
    some = [each for each in found.accesses if each.requests and _is_costly(each)]
    some.sort(key=lambda each: (-excess(each), -each.executed))
    return tuple(dict.fromkeys(map(_use_of, some)))[:_ACCESSES]


def _use_of(each: AccessFigures) -> AccessUse:
    return AccessUse(
        f"{each.space} {each.kind}",
        *(each.width, each.line, each.range, each.cost or 0.0, each.least or 0.0),
        *(each.active or 0.0, each.same_address or 0.0, each.reuse or 0.0, each.stride),
    )


def tried_of(launch: Prepared) -> tuple[Tried, ...]:
    """Return what was tried in the launch's kernel, the largest gain first; then what was not."""
    found = read_tried(launch.trace.provenance, launch.launch.label)
    some = () if found is None else found.suspects
    made = [
        Tried(
            *(each.kind, each.line, each.how or "not tried", each.gain, each.spread),
            each.refused or f"{each.instructions} instructions; {INVALID}",
        )
        for each in some
    ]
    return tuple(sorted(made, key=_order))


def _order(tried: Tried) -> float:
    return 2.0 if tried.gain_share is None else -tried.gain_share


def with_tried(findings: Sequence[Finding], tried: Sequence[Tried]) -> tuple[Finding, ...]:
    """Return findings, each with what was tried of the same kind at one of its lines."""
    timed = [each for each in tried if each.gain_share is not None]
    return tuple(
        replace(one, tried=next((each for each in timed if _about(one, each)), None))
        for one in findings
    )


def _about(finding: Finding, tried: Tried) -> bool:
    if tried.kind not in _KINDS.get(finding.id, _OTHERS) or not tried.line:
        return False
    named = [*finding.where.lines, *finding.where.regions]
    return PurePath(tried.line).name in {line for text in named for line in _LINE.findall(text)}


def not_found(launch: Prepared) -> Iterator[Unknown]:
    """Yield why further runs that were asked for found nothing."""
    said, label = launch.trace.provenance, launch.launch.label
    whats = ((NO_ADDRESSES, "addresses of lanes"), (NOT_TRIED, "what a copy without a line takes"))
    for key, what in whats:
        if key + label in said:
            yield Unknown(what, said[key + label])
