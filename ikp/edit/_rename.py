"""Renaming of regions, launches and warps' roles; merging of regions; splitting of launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ikp.core.objects import Instant, items
from ikp.core.rows import renumber_rows, take_events
from ikp.core.trace import AnyTrace, Region, Slots, Trace, no_slots
from ikp.core.warps import joined_warps
from ikp.edit._parts import needs_timeline, noted
from ikp.errors import UsageError

Renaming = Mapping[str, str] | Callable[[str], str]
"""New names by old ones (others stay), or a function from old to new."""


def rename_regions(trace: AnyTrace, names: Renaming) -> AnyTrace:
    """Return the trace with other names for its regions.

    Raises:
        UsageError: a name in ``names`` is no region's, a new one is no string, or two regions would
            get the same name: that is what ``merge_regions`` does.
    """
    old = [region.name for region in trace.regions]
    new = _renamed(old, names, "region")
    became: dict[str, str] = {}
    for before, after in zip(old, new, strict=True):
        if became.setdefault(after, before) != before:
            raise UsageError(
                f"regions {became[after]!r} and {before!r} would both be named {after!r}. "
                "To make them one, call ikp.edit.merge_regions."
            )
    regions = tuple(replace(one, name=name) for one, name in zip(trace.regions, new, strict=True))
    return noted(replace(trace, regions=regions), "rename_regions")


def merge_regions(trace: AnyTrace, names: Renaming) -> AnyTrace:
    """Return the trace with its regions renamed, those that get one name made one region.

    ``merge_regions(trace, lambda name: name.rstrip("0123456789"))`` makes ``"load1"`` and
    ``"load2"`` one region, ``"load"``, in tables and in the viewer.

    Raises:
        UsageError: a name in ``names`` is no region's, or a new one is no string.
    """
    new = _renamed([region.name for region in trace.regions], names, "region")
    kept = {name: i for i, name in reversed(list(enumerate(new)))}  # the first of each name
    order = sorted(kept.values())
    place = np.array([order.index(kept[name]) for name in new], np.int32)
    regions = tuple(Region(trace.regions[i].id, new[i]) for i in order)
    return noted(replace(renumber_rows(trace, region=place), regions=regions), "merge_regions")


def rename_launches(trace: AnyTrace, names: Renaming) -> AnyTrace:
    """Return the trace with other labels for its launches, which name them in viewers.

    Launches that get the same label count as launches of one kernel.

    Raises:
        UsageError: a name in ``names`` is no launch's label, or a new one is no string.
    """
    new = _renamed([launch.label for launch in trace.launches], names, "launch")
    launches = tuple(
        replace(launch, label=label) for launch, label in zip(trace.launches, new, strict=True)
    )
    return noted(replace(trace, launches=launches), "rename_launches")


def rename_warps(trace: AnyTrace, names: Mapping[int, str] | Callable[[int, int], str]) -> AnyTrace:
    """Return the trace with roles for its warps, which viewers show beside the warps' numbers.

    Args:
        trace: the trace.
        names: roles by warp in block (other warps keep theirs), or a function of linear block id
            and warp in block. An empty role is none.

    Raises:
        UsageError: a role is no string, or no block has such a warp.
    """
    slots = joined_warps([trace.slots, trace.others])
    if callable(names):
        pairs = zip(slots.block.tolist(), slots.warp.tolist(), strict=True)
        wanted = [names(block, warp) for block, warp in pairs]
    else:
        missing = sorted(set(names) - set(slots.warp.tolist()))
        if missing and len(slots):
            raise UsageError(f"no block has a warp {missing[0]}: warps count from 0 in each block.")
        old = (trace.roles[role] for role in slots.role.tolist())
        wanted = [names.get(w, role) for w, role in zip(slots.warp.tolist(), old, strict=True)]
    _check_names(wanted, "role")
    roles = {"": 0}
    codes = [roles.setdefault(role, len(roles)) for role in wanted]
    mine, beside = np.split(np.array(codes, np.int32), [len(trace.slots)])
    left = replace(trace, slots=replace(trace.slots, role=mine), roles=tuple(roles))
    return noted(replace(left, others=replace(trace.others, role=beside)), "rename_warps")


_BY = {"region": "region", "role": "role", "warp": "warp", "block": "block", "sm": "SM"}
"""What events are grouped by, with the word for one such group."""


def group_by(trace: AnyTrace, by: str | Callable[[Instant], str]) -> AnyTrace:
    """Return the trace with each launch split into one for each group of its events.

    A launch has rows of its own in viewers: grouped by region, each region has a row for each warp
    that recorded it. The groups' labels are ``"gemm · load"``, ``"gemm · dot"``, ... Each
    holds all of the launch's warps that are left with events.

    Args:
        trace: the trace.
        by: ``"region"``, ``"role"``, ``"warp"``, ``"block"`` or ``"sm"``, or a function that
            returns the group of a range or an instant (ten times as slow).

    Raises:
        UsageError: ``by`` is something else, a group's name is no string, or there is no timeline:
            ``trace.stats(by=...)`` groups totals.
    """
    needs_timeline(trace, "group_by moves events", "Use trace.stats(by=...), or trace.to_pandas().")
    names, code = _groups(trace, by)
    slots, events = trace.slots, trace.events
    # The new slots: one for each old slot and each group that has events there.
    key = events.slot.astype(np.int64) * max(1, len(names)) + code
    pairs, row = np.unique(key, return_inverse=True)
    old_slot, group = np.divmod(pairs, max(1, len(names)))
    launch_key = slots.launch[old_slot].astype(np.int64) * max(1, len(names)) + group
    launches, launch = np.unique(launch_key, return_inverse=True)
    order = np.lexsort((old_slot, launch))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    moved = place[row]
    result = take_events(trace, np.argsort(moved, kind="stable"))
    result = replace(result, events=replace(result.events, slot=np.sort(moved).astype(np.int32)))
    columns = {name: getattr(slots, name)[old_slot[order]] for name in Slots.__slots__}
    columns["launch"] = launch[order].astype(np.int32)
    made = []
    for one in launches.tolist():
        old, number = divmod(one, max(1, len(names)))
        original = trace.launches[old]
        made.append(replace(original, label=f"{original.label} · {names[number]}"))
    return noted(
        replace(result, launches=tuple(made), slots=Slots(**columns), others=no_slots()),
        f"group_by({by if isinstance(by, str) else by.__qualname__})",
    )


def _numbered(named: list[str]) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return names in the order of their first use, and which of them each event has."""
    _check_names(named, "group")
    known = {name: i for i, name in enumerate(dict.fromkeys(named))}
    return list(known), np.array([known[name] for name in named], np.int64)


def _groups(
    trace: Trace, by: str | Callable[[Instant], str]
) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the groups' names, and the group of each event."""
    slots, events = trace.slots, trace.events
    if callable(by):
        return _numbered([by(item) for item in items(trace)])
    if by == "region":
        return [one.name for one in trace.regions], events.region.astype(np.int64)
    if by == "role":
        return [role or "no role" for role in trace.roles], slots.role[events.slot].astype(np.int64)
    if by not in _BY:
        raise UsageError(f"can't group by {by!r}: use one of {', '.join(_BY)}, or a function.")
    values, code = np.unique(getattr(slots, by)[events.slot], return_inverse=True)
    return [f"{_BY[by]} {value}" for value in values.tolist()], code.astype(np.int64)


def _renamed(old: Sequence[str], names: Renaming, what: str) -> list[str]:
    if callable(names):
        new = [names(name) for name in old]
    else:
        if missing := [name for name in names if name not in old]:
            known = ", ".join(sorted({repr(name) for name in old})) or "none"
            raise UsageError(f"no {what} is named {missing[0]!r}; the trace has: {known}.")
        new = [names.get(name, name) for name in old]
    _check_names(new, what)
    return new


def _check_names(names: Sequence[object], what: str) -> None:
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"the new name of a {what} is a string, not {name!r}.")
