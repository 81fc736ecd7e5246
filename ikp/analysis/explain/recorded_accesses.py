"""A range's facts, with costs from recorded addresses for accesses whose addresses the machine code
does not say.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from ikp.analysis.explain.prepared import Prepared, once
from ikp.core.code_facts import AccessFacts, RangeFacts
from ikp.core.run_figures import AccessFigures, read_addresses

RECORDED: Final = "m"
"""The letter in ``AccessFacts.depends`` of a cost that was recorded."""
_ALL_LANES: Final = 31.5
"""Lanes of one address, in the mean, from which on a request has one address."""

Key = tuple[str, str]
"""Unit and source line of an access."""


def with_recorded(launch: Prepared, facts: RangeFacts) -> RangeFacts:
    """Return a range's facts with recorded costs where the machine code says none."""
    found = _recorded(launch)
    if not found:
        return facts
    return replace(facts, accesses=tuple(_one(each, found) for each in facts.accesses))


@once
def _recorded(launch: Prepared) -> dict[Key, list[AccessFigures]]:
    """Return the figures of a launch's kernel that have requests, by unit and line."""
    read = read_addresses(launch.trace.provenance, launch.launch.label)
    found = defaultdict[Key, list[AccessFigures]](list)
    for each in () if read is None else read.accesses:
        if each.requests:
            unit = f"{each.kind}.{each.space}.{each.width}"
            found[unit, PurePath(each.line).name].append(each)
    return dict(found)


def _one(access: AccessFacts, found: dict[Key, list[AccessFigures]]) -> AccessFacts:
    some = found.get((access.unit, PurePath(access.line).name))
    if access.cost is not None or not some:
        return access
    requests = sum(each.requests for each in some)

    def mean(name: str) -> float:
        return sum((getattr(each, name) or 0.0) * each.requests for each in some) / requests

    one_address = mean("same_address") >= _ALL_LANES
    return replace(
        access,
        cost=mean("cost"),
        least=mean("least"),
        addresses=1 if one_address else access.addresses,
        depends=access.depends + RECORDED,
    )
