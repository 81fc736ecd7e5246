"""``concat``, which joins several traces into one, and ``shift``, which moves one in time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from operator import index
from typing import Any

import numpy as np

from ikp.core.args import Args, highest, join_args, renumbered
from ikp.core.rows import joined_rows, renumber_rows
from ikp.core.trace import AnyTrace, Events, Slots, Trace
from ikp.core.warps import joined_warps
from ikp.edit._parts import noted
from ikp.errors import UsageError


def concat(traces: Iterable[AnyTrace]) -> AnyTrace:
    """Return one trace with the launches of all, in order.

    Times stay as they are: launches of other devices line up as exactly as each is placed in Unix
    time (``ClockFit.unix_bound_ns``), and those of other hosts as far as the hosts' clocks agree.
    Regions and roles of one name are one. Where provenances differ, all texts are kept. Arrows stay
    in their trace: they get other numbers.

    Raises:
        UsageError: there is no trace, or one argument has different types in two of them.
    """
    parts = list(traces)
    if not parts or not all(isinstance(part, Trace) for part in parts):
        raise UsageError(f"concat joins traces, at least one, not {parts!r}.")
    regions = [*dict.fromkeys(chain.from_iterable(part.regions for part in parts))]
    roles = [*dict.fromkeys(chain([""], *(part.roles for part in parts)))]
    slots, others, moved = [], [], []
    launches = warps = 0
    for part in parts:
        slots.append(_slots(part.slots, launches, part.roles, roles))
        others.append(_slots(part.others, launches, part.roles, roles))
        number = np.array([regions.index(one) for one in part.regions], np.int32)
        warp = np.arange(warps, warps + len(part.slots))
        moved.append(renumber_rows(part, slot=warp, region=number))
        launches, warps = launches + len(part.launches), warps + len(part.slots)
    return replace(
        parts[0],
        launches=tuple(chain.from_iterable(part.launches for part in parts)),
        regions=tuple(regions),
        slots=joined_warps(slots),
        others=joined_warps(others),
        provenance=_provenance([part.provenance for part in parts]),
        roles=tuple(roles),
        args=join_args(_arguments(parts)),
        **joined_rows(moved),
    )


def _arguments(parts: Sequence[Trace]) -> list[tuple[Args, int]]:
    """Return each part's arguments and number of events; no arrow goes from part to part."""
    found, numbers = list[tuple[Args, int]](), 0
    for part in parts:
        found.append((renumbered(part.args, numbers), len(part.events)))
        numbers += highest(part.args)
    return found


def _slots(slots: Slots, launches: int, before: Sequence[str], roles: list[str]) -> Slots:
    """Return a part's warps with the number of their launch, and of their role, in the whole."""
    role = np.array([roles.index(name) for name in before], np.int32)
    return replace(slots, launch=slots.launch + np.int32(launches), role=role[slots.role])


def _provenance(parts: list[dict[str, str]]) -> dict[str, str]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: " | ".join(dict.fromkeys(part[name] for part in parts if name in part))
        for name in names
    }


def _whole_ns(by_ns: object) -> int:
    """Return a number of nanoseconds, or refuse what is none."""
    try:
        return index(by_ns)  # type: ignore[arg-type]  # what is no integer raises
    except TypeError as error:
        raise UsageError(f"by_ns={by_ns!r} is not an integer number of nanoseconds.") from error


def shift(trace: AnyTrace, by_ns: int) -> AnyTrace:
    """Return the trace with all times later by ``by_ns`` nanoseconds, or earlier if negative.

    Raises:
        UsageError: it is no integer, or a time would become negative or exceed 63 bits.
    """
    by_ns = _whole_ns(by_ns)
    tables: dict[str, Slots | Events]
    tables = {"slots": trace.slots, "events": trace.events, "others": trace.others}
    times = [getattr(table, name) for table in tables.values() for name in ("start_ns", "end_ns")]
    least = min((int(column.min()) for column in times if len(column)), default=0)
    most = max((int(column.max()) for column in times if len(column)), default=0)
    if any(map(len, times)) and not 0 <= least + by_ns <= most + by_ns < 1 << 63:
        raise UsageError(
            f"shifted by {by_ns} ns, times would lie outside of 0 to 2**63 - 1 ns of Unix time: "
            f"they are {least} to {most}."
        )
    moved: dict[str, Any] = {
        name: replace(table, start_ns=table.start_ns + by_ns, end_ns=table.end_ns + by_ns)
        for name, table in tables.items()
    }
    return noted(replace(trace, **moved), f"shift({by_ns})")
