"""Figures of recorded launches, from which an estimate of what recording costs can be made."""

from __future__ import annotations

from typing import Any

import numpy as np

REGIONS = 12
"""How many regions of a launch are kept, those of the most time first."""


def of_trace(trace: Any, plan: str) -> list[dict[str, Any]]:
    """Return figures of each launch of a trace, and of its patched kernel."""
    return [of_launch(trace, number) | patched(plan) for number in range(len(trace.launches))]


def of_launch(trace: Any, number: int) -> dict[str, Any]:
    launch, slots, others = trace.launches[number], trace.slots, trace.others
    mine, beside = slots.launch == number, others.launch == number
    made: dict[str, Any] = {
        "label": launch.label,
        "grid": launch.grid,
        "block": launch.block,
        "warps": launch.warps_per_block,
        "backend": launch.backend,
        "ns_per_tick": launch.clock.ns_per_tick,
        "attempted": launch.attempted,
        "kept": launch.kept,
        "slots": int(mine.sum()),
        "others": int(beside.sum()),
    }
    begin = [each.start_ns[which] for each, which in ((slots, mine), (others, beside))]
    end = [each.end_ns[which] for each, which in ((slots, mine), (others, beside))]
    if not len(np.concatenate(begin)):
        return made
    made["span_ns"] = int(np.concatenate(end).max() - np.concatenate(begin).min())
    for name, table, which in (("slots", slots, mine), ("others", others, beside)):
        made[f"{name}_resident_ns"] = int((table.end_ns[which] - table.start_ns[which]).sum())
        made[f"{name}_blocks"] = spread(*blocks(table, which))
    made["sms"] = len(np.unique(np.concatenate([slots.sm[mine], others.sm[beside]])))
    chosen = mine[trace.events.slot] if len(trace.events) else np.zeros(0, bool)
    events = {each: getattr(trace.events, each)[chosen] for each in ("region", "ticks")}
    rows = []
    for region in np.unique(events["region"]):
        ticks = events["ticks"][events["region"] == region]
        rows.append(
            (trace.regions[region].name, len(ticks), int(ticks.sum()), float(np.median(ticks)))
        )
    made["regions"] = sorted(rows, key=lambda each: -each[2])[:REGIONS]
    return made


def blocks(table: Any, which: Any) -> tuple[Any, Any]:
    """Return the starts and the durations of blocks, in ns."""
    ids, row = np.unique(table.block[which], return_inverse=True)
    first = np.full(len(ids), np.iinfo(np.int64).max)
    last = np.zeros(len(ids), np.int64)
    np.minimum.at(first, row, table.start_ns[which])
    np.maximum.at(last, row, table.end_ns[which])
    return first, last - first


def spread(starts: Any, durations: Any) -> list[float]:
    """Return how many, their mean and quartiles, and the mean of those that began first."""
    if not len(durations):
        return []
    early = durations[starts < np.median(starts) + 1]
    return [
        len(durations),
        float(durations.mean()),
        *(float(each) for each in np.quantile(durations, (0.25, 0.5, 0.75))),
        float(early.mean()),
    ]


def patched(plan: str) -> dict[str, Any]:
    """Return what is known of the patched kernels of a plan."""
    from ikp.backends import loaded

    found = [
        each
        for key, each in loaded.modules._patches.items()  # noqa: SLF001
        if hasattr(each, "registers") and plan in map(str, key)
    ]
    return {
        "patches": [
            {
                "names": list(each.names[:2]),
                "registers": each.registers,
                "fewer_blocks": each.fewer_blocks,
                "inserted": sum(end - begin for begin, end in each.ours),
                "plain": each.plain,
                "most": each.most,
            }
            for each in found
        ]
    }
