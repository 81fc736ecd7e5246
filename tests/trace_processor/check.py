"""Compares what the trace processor made of a file with the trace that was written, exactly."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from math import prod
from os import PathLike
from typing import Any

import numpy as np

from ikp.core.trace import Launch, Slots, Trace
from ikp.core.warps import joined_warps
from ikp.exporters.timeline.tracks import group_names
from tests.trace_processor.events import check_events
from tests.trace_processor.flows import check_flows
from tests.trace_processor.found import (
    BLOCKS,
    LAST,
    LAUNCH,
    OVERVIEW,
    STAGES,
    SUMMARY,
    Found,
    check_import,
    check_order,
    load,
    track_paths,
    warp_roles,
)
from tests.trace_processor.query import columns
from tests.trace_processor.server import open_trace
from tests.trace_processor.totals import check_totals


def check_trace(path: str | PathLike[str], trace: Trace) -> None:
    """Fail unless the trace processor finds in the file exactly what is in ``trace``.

    Of a block, all warps are to have left records, or none.

    Compared are all slices with name, start, duration, track, parent and arguments, the counters,
    the evidence, the order of the tracks, arrows, and that nothing was lost when it was loaded.
    """
    with open_trace(path) as processor:
        check_import(processor)
        check_order(processor)
        found = load(processor)
        check_flows(processor, check_events(found, trace), trace)
        check_totals(found, trace)
        _check_blocks(found, trace)
        _check_launches(found, trace)
        _check_stages(found, trace)
        _check_roles(found, trace)
        _check_rows(found, trace)
        _check_counters(found, trace)


def _equal(what: str, found: Any, wanted: Any) -> None:
    assert found == wanted, f"{what}: the trace processor found {found!r}, not {wanted!r}"


def _check_rows(found: Found, trace: Trace) -> None:
    """Each launch has a row that is named after it; no other processes are made up."""
    rows = columns(found.processor, "select count(*) n from process where pid > 0")
    _equal("processes", rows["n"].tolist(), [0])
    names = columns(
        found.processor,
        "select extract_arg(t.source_arg_set_id, 'sibling_order_rank') rank, t.name, p.name top"
        " from track t join track p on t.parent_id = p.id where p.parent_id is null and rank > 0"
        f" and rank < {LAST} order by rank",
    )
    _equal("rows of launches", [name or "" for name in names["name"].tolist()], _row_names(trace))
    _equal("rows on top", names["top"].tolist(), [_top(trace, one) for one in trace.launches])


def _row_names(trace: Trace) -> list[str]:
    all_of = [(one.rank, one.label) for one in trace.launches]
    return [
        label if all_of.count((rank, label)) == 1 else f"{label} #{all_of[:i].count((rank, label))}"
        for i, (rank, label) in enumerate(all_of)
    ]


def _top(trace: Trace, launch: Launch) -> str:
    if launch.rank is None:
        return f"launches · {launch.device}"
    digits = max(len(str(one.rank)) for one in trace.launches if one.rank is not None)
    return f"launches · rank {launch.rank:0{digits}d} · {launch.device}"


def _check_roles(found: Found, trace: Trace) -> None:
    """A warp's track has the role in its name, where all its slots agree on one."""
    roles: dict[tuple[int, int, int], set[str]] = {}
    rows = (getattr(trace.slots, name).tolist() for name in ("launch", "sm", "warp", "role"))
    for launch, sm, warp, role in zip(*rows, strict=True):
        roles.setdefault((launch, sm, warp), set()).add(trace.roles[role])
    for place, role in warp_roles(found.processor):
        wanted = roles[place]
        assert role in wanted | {""}, f"warp {place} has the role {role!r}, not one of {wanted}"
        assert len(wanted) > 1 or role in wanted, f"warp {place} lacks its role {wanted}"


def _check_blocks(found: Found, trace: Trace) -> None:
    """Blocks are slices that nest in nothing, and whose arguments tell all about their warps."""
    slices = found.with_role(BLOCKS)
    assert not slices["depth"].any(), "blocks of one lane overlap"
    wanted = _wanted_blocks(trace)
    facts = _arguments(found)
    seen = set()
    rows = (slices[name].tolist() for name in ("id", "ts", "dur", "name", "launch", "sm"))
    for identity, start, duration, name, launch, sm in zip(*rows, strict=True):
        block = facts[identity]["debug.block"]
        slots = wanted.get((launch, sm, block))
        assert slots is not None, f"{name} is no block of launch {launch} on SM {sm}"
        _equal(f"start and duration of {name}", (start, duration), _interval(trace, slots))
        _equal(f"name of block {block}", name, _block_name(trace, launch, block))
        _equal(f"arguments of {name}", facts[identity], _block_facts(trace, slots, start))
        seen.add((launch, sm, block))
    _equal("blocks", seen, set(wanted))


def _every(trace: Trace) -> Slots:
    """Return all warps: those with slots first."""
    return joined_warps([trace.slots, trace.others])


def _wanted_blocks(trace: Trace) -> dict[tuple[int, int, int], list[int]]:
    slots = _every(trace)
    blocks = defaultdict(list)
    keys = zip(slots.launch.tolist(), slots.sm.tolist(), slots.block.tolist(), strict=True)
    for slot, key in enumerate(keys):
        blocks[key].append(slot)
    return blocks


def _interval(trace: Trace, slots: list[int]) -> tuple[int, int]:
    every = _every(trace)
    start = int(every.start_ns[slots].min())
    return start, max(int(every.end_ns[slots].max()), int(every.start_ns[slots].max())) - start


def _block_name(trace: Trace, launch: int, block: int) -> str:
    x, y, _ = trace.launches[launch].grid
    return f"block ({block % x},{block // x % y},{block // (x * y)})"


def _block_facts(trace: Trace, slots: list[int], start: int) -> dict[str, Any]:
    table = _every(trace)
    first = slots[0]
    facts: dict[str, Any] = {
        "debug.block": int(table.block[first]),
        "debug.sm": int(table.sm[first]),
        "debug.launch": int(table.launch[first]),
    }
    if first >= len(trace.slots):
        return facts | {"debug.recorded": 0}
    for i, slot in enumerate(sorted(slots, key=lambda slot: int(table.warp[slot]))):
        kept, attempted = int(table.kept[slot]), int(table.attempted[slot])
        warp: dict[str, Any] = {
            "warp": int(table.warp[slot]),
            "start_offset_ns": int(table.start_ns[slot]) - start,
            "end_offset_ns": int(table.end_ns[slot]) - start,
            "kept": kept,
        }
        warp |= {"role": int(table.role[slot])} if table.role[slot] else {}
        warp |= {"attempted": attempted} if attempted != kept else {}
        warp |= {} if table.finished[slot] else {"finished": 0}
        facts |= {f"debug.warps[{i}].{name}": value for name, value in warp.items()}
    return facts


def _check_launches(found: Found, trace: Trace) -> None:
    """Each launch is a slice over all its warps, with the evidence as arguments."""
    slices, facts = found.with_role(LAUNCH), _arguments(found)
    wanted = []
    for number, launch in enumerate(trace.launches):
        start, end = _extent(trace, number)
        evidence = _known(launch) | {"dropped": launch.dropped}
        wanted.append((number, launch.label, start, end - start, _flat(evidence)))
        if launch.dropped > 0:
            wanted.append((number, f"{launch.dropped} records dropped", end, 0, {}))
    names = ("launch", "name", "ts", "dur", "id")
    rows = zip(*(slices[name].tolist() for name in names), strict=True)
    got = [(*row[:1], row[1] or "", *row[2:4], facts[row[4]]) for row in rows]
    _equal("number of slices of launches", len(got), len(wanted))
    for one, other in zip(sorted(got, key=_key), sorted(wanted, key=_key), strict=True):
        _equal("evidence of a launch", one, other)
    _check_overview(found, facts, trace)
    summary = found.with_role(SUMMARY)
    _equal("summary", summary["name"].tolist(), ["ikp trace"])
    sizes = {
        "launches": len(trace.launches),
        "slots": len(trace.slots),
        "events": len(trace.events),
    }
    of_file = facts[summary["id"][0]]
    _equal("sizes in the summary", {name: of_file[f"debug.{name}"] for name in sizes}, sizes)
    told = {key: of_file[key] for key in of_file if key.startswith("debug.provenance")}
    _equal("provenance", told, _flat({"provenance": trace.provenance}))


def _check_overview(found: Found, facts: defaultdict[int, dict[str, Any]], trace: Trace) -> None:
    """Each launch is one of all launches, too, in the row of its rank and device."""
    slices = found.with_role(OVERVIEW)
    paths = track_paths(found.processor)
    assert not slices["depth"].any(), "launches overlap in the row of all launches"
    names = ("id", "name", "ts", "dur", "track")
    got = []
    for one, name, ts, dur, track in zip(*(slices[n].tolist() for n in names), strict=True):
        top = paths[track].removeprefix("all/").removesuffix("/launches at the same time")
        got.append((facts[one]["debug.launch"], name or "", ts, dur, top))
    wanted = []
    for number, launch in enumerate(trace.launches):
        start, end = _extent(trace, number)
        wanted.append((number, launch.label, start, end - start, _top(trace, launch)))
    _equal("the row of all launches", sorted(got), wanted)


def _check_stages(found: Found, trace: Trace) -> None:
    """Each launch on a GPU is a render stage, as a viewer of GPUs has kernels."""
    stages = columns(
        found.processor,
        "select s.name, ts, dur, t.name as row from slice s join track t on t.id = track_id"
        f" where t.type = '{STAGES}'",
    )
    names = (stages[name].tolist() for name in ("row", "ts", "dur", "name"))
    got = sorted((row, ts, dur, name or "") for row, ts, dur, name in zip(*names, strict=True))
    wanted = []
    for number, launch in enumerate(trace.launches):
        if launch.clock.kind != "host":
            start, end = _extent(trace, number)
            wanted.append((_top(trace, launch), start, end - start, launch.label))
    _equal("render stages", got, sorted(wanted))


def _known(launch: Launch) -> dict[str, Any]:
    known = {name: value for name, value in asdict(launch).items() if value is not None}
    clock = {name: value for name, value in known["clock"].items() if value is not None}
    if launch.clock.residual_max_ns is None and launch.clock.rate != "exact":
        clock["residual"] = "unknown: no spare anchors"
    return {**known, "clock": clock}


def _key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[0], row[2], row[1]


def _extent(trace: Trace, launch: int) -> tuple[int, int]:
    slots = _every(trace)
    rows = slots.launch == launch
    if not rows.any():
        moments = np.concatenate([slots.start_ns, trace.events.start_ns])
        start = int(moments.min()) if len(moments) else 0
        return start, start
    start = slots.start_ns[rows]
    return int(start.min()), int(max(start.max(), slots.end_ns[rows].max()))


def _flat(value: Any, path: str = "debug") -> dict[str, Any]:
    """Return nested facts by the keys that the trace processor gives them."""
    if isinstance(value, dict):
        parts = [_flat(item, f"{path}.{_clean(name)}") for name, item in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [_flat(item, f"{path}[{i}]") for i, item in enumerate(value)]
    else:
        return {path: int(value) if isinstance(value, bool) else value}
    return {key: item for part in parts for key, item in part.items()}


def _clean(name: str) -> str:
    return "".join("_" if character in ".[]" else character for character in name)


def _arguments(found: Found) -> defaultdict[int, dict[str, Any]]:
    """Return all arguments of slices that are not events, by slice."""
    slices = found.slices
    chosen = slices["role"] <= BLOCKS
    sets = defaultdict(list)
    for slice_id, arguments in zip(
        slices["id"][chosen].tolist(), slices["arguments"][chosen].tolist(), strict=True
    ):
        sets[arguments].append(slice_id)
    rows = columns(
        found.processor,
        "select arg_set_id s, key, int_value i, real_value r, string_value t from args"
        f" where arg_set_id in ({','.join(map(str, sets))})",
    )
    facts: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    for arguments, key, *values in zip(*(rows[name].tolist() for name in rows), strict=True):
        for slice_id in sets[arguments]:
            facts[slice_id][key] = next((value for value in values if value is not None), None)
    return facts


def _check_counters(found: Found, trace: Trace) -> None:
    """Blocks and warps that run are counted at every change, down to 0."""
    rows = columns(
        found.processor, "select track_id track, ts, cast(value as int) value from counter"
    )
    paths = track_paths(found.processor)
    got: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for track, time, value in zip(*(rows[name].tolist() for name in rows), strict=True):
        got[paths[track]].append((time, value))
    slots = _every(trace)
    blocks_of = defaultdict(list)
    for (number, *_), members in _wanted_blocks(trace).items():
        start, duration = _interval(trace, members)
        blocks_of[number].append((start, start + duration))
    tops = group_names(trace.launches)
    wanted = {}
    for top in tops:
        numbers = [number for number, other in enumerate(tops) if other == top]
        blocks, warps, every, every_warp = [], [], True, True
        for number in numbers:
            mine = np.flatnonzero(slots.launch == number).tolist()
            warps += [
                (int(slots.start_ns[i]), max(int(slots.start_ns[i]), int(slots.end_ns[i])))
                for i in mine
            ]
            blocks += blocks_of[number]
            launch = trace.launches[number]
            there = prod(launch.grid)
            every &= len({int(slots.block[i]) for i in mine}) >= there
            launched = sum(int(slots.warp[i]) < launch.warps_per_block for i in mine)
            every_warp &= every and launched >= there * launch.warps_per_block
        for name, intervals in (
            ("resident blocks" if every else "resident recorded blocks", blocks),
            ("active warps" if every_warp else "active recorded warps", warps),
        ):
            wanted[f"all/{top}/{name}"] = _steps(intervals)
    _equal(
        "counters", {k: sorted(v) for k, v in got.items()}, {k: v for k, v in wanted.items() if v}
    )


def _steps(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    changes: Counter[int] = Counter()
    for start, end in intervals:
        changes[start] += 1
        changes[end] -= 1
    steps, now = [], 0
    for time in sorted(changes):
        if changes[time]:
            now += changes[time]
            steps.append((time, now))
    return steps
