"""The unknowns of a verdict: what its trace can't say, why, and what to record so that it can."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.copied_runs import not_found
from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.overview import Chosen
from ikp.analysis.explain.places import hot_ranges
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.use_of_hardware import room_of
from ikp.analysis.explain.verdict import Unknown
from ikp.analysis.perturbation import recording_share
from ikp.core.code_facts import NO_FACTS
from ikp.core.run_figures import ADDRESSES, NO_ADDRESSES

if TYPE_CHECKING:
    from ikp.core.trace import Trace

_MUCH: Final = 0.35
"""Share of the warps' time from which on the cost of recording is an unknown."""
_DARK: Final = 0.3
"""Share of the warps' time in no range from which on ranges say little about a kernel."""


def has_times(launch: Prepared) -> bool:
    """Whether durations are those of a GPU; the interpreter's say nothing about one."""
    return launch.on_gpu and launch.duration > 0


def nothing_recorded(trace: Trace) -> Iterator[Unknown]:
    """Yield why there is no launch to explain."""
    if len(trace.totals):
        yield Unknown(
            "everything but totals",
            "totals were recorded: they have no order in time.",
            "Record a timeline, without mode='totals'; `ikp stats` shows totals.",
        )
    else:
        yield Unknown(
            "everything",
            f"no warp recorded in {len(trace.launches)} launches.",
            "See the notes under `ikp stats`.",
        )


def too_long(launch: Prepared) -> Unknown:
    """Return the unknown of a launch whose warps lie too far apart in time to be explained."""
    return Unknown(
        "everything",
        f"{launch.launch.label} takes {launch.duration:,} ns from its first start to its last end, "
        "which no launch does: its times are wrong.",
        "Record again, or cut the trace with ikp.edit.cut.",
    )


def unknowns(launch: Prepared, chosen: Chosen) -> Iterator[Unknown]:
    """Yield the unknowns of a launch, the gravest first."""
    yield from _times(launch)
    yield from _losses(launch)
    yield from _recording(launch)
    if launch.on_gpu:
        yield from _room(launch)
    yield from not_found(launch)
    yield from _counts(launch)
    yield from _marks(launch)
    yield from _comparisons(launch, chosen)


def _times(launch: Prepared) -> Iterator[Unknown]:
    clock = launch.launch.clock
    if clock.kind == "host":
        yield Unknown(
            "SMs, waves, and how long anything takes on a GPU",
            "the interpreter runs blocks one by one on the CPU, and its times are the host's: no "
            "finding is made of them.",
            "Record on a GPU.",
        )
    elif launch.duration <= 0:
        yield Unknown("how long anything took", "the launch's start and end are one moment.")
    elif clock.rate == "nominal":
        yield Unknown(
            "how SMs compare in time",
            "the clock's rate is the advertised one: no SM had two anchors apart in time.",
            "Let each warp run for longer.",
        )
    elif clock.kind == "cycles" and clock.residual_max_ns is None:
        yield Unknown(
            "how well clocks of SMs fit each other",
            "there were no spare anchors: what compares SMs may be off by as much as it shows.",
        )


def _counts(launch: Prepared) -> Iterator[Unknown]:
    """Yield that loops with much of the time are in no count, where a further run counts them."""
    work = counted_work(launch) if launch.on_gpu else None
    share = sum(one.share for one in hot_ranges(launch, work) if one.looped) if work else 0.0
    label = launch.launch.label
    asked = {f"{ADDRESSES}{label}", f"{NO_ADDRESSES}{label}"} & {*launch.trace.provenance}
    if share >= _DARK and not asked:
        yield Unknown(
            "how much work the hottest loops do",
            f"{100 * share:.0f} % of the warps' time is in loops that end as data decide: what "
            "they do is in no count and no roof.",
            "Record with --probe addresses, which counts them in one more run.",
        )


def _losses(launch: Prepared) -> Iterator[Unknown]:
    it = launch.launch
    if it.dropped and it.overflow == "wrap":
        yield Unknown(
            "how the kernel began",
            f"{it.dropped:,} of {it.attempted:,} records were overwritten: a ring keeps the last.",
            "Give it a larger buffer, or record fewer warps.",
        )
    elif it.dropped and it.overflow == "stream":
        yield Unknown(
            "what warps did at times",
            f"{it.dropped:,} of {it.attempted:,} records were overwritten before the host had read "
            "them: that time counts as in no range.",
            "Give it a larger buffer, or record fewer warps.",
        )
    elif it.dropped:
        yield Unknown(
            "how the kernel ended",
            f"{it.dropped:,} of {it.attempted:,} records were dropped: what warps did after their "
            "slots were full counts as in no range.",
            "Give it a larger buffer, or record fewer warps (ikp.capture finds a size).",
        )
    if it.unfinished:
        yield Unknown(
            "when some warps ended",
            f"{it.unfinished:,} warps never reached finish.",
        )
    recordable = prod(it.grid) * it.warps_per_block
    if 0 < len(launch.start) < recordable:
        yield Unknown(
            "what the other warps did",
            f"{len(launch.start):,} of {recordable:,} warps recorded{_of_others(launch)}.",
        )


def _of_others(launch: Prepared) -> str:
    if not launch.every_block:
        return (
            ": nothing is said of CTA slots, waves and tails, and the launch may have taken longer"
        )
    return ", and of all blocks it is known when they ran" if len(launch.trace.others) else ""


def _recording(launch: Prepared) -> Iterator[Unknown]:
    it = launch.launch
    share = recording_share(it, it.attempted, float(launch.warp_time)) or 0.0
    if share >= _MUCH:
        yield Unknown(
            "how long warps wait without recording",
            f"recording took up to {100 * share:.0f} % of their time. Copies and products go on "
            "meanwhile, so waits for them may be longer, and time between ranges is shorter.",
            "Record less: --detail waits or loops, --max-overhead 1.05, or fewer --warps.",
        )


def _room(launch: Prepared) -> Iterator[Unknown]:
    room, facts = room_of(launch), launch.facts
    if room.plain is not None and room.warps is not None and facts is not None:
        yield Unknown(
            "how many warps an SM holds without recording",
            f"the copy with records has {facts.registers} registers for each thread, the kernel "
            f"{room.registers}: an SM has room for {room.warps:.0f} of its warps, and without "
            f"records for up to {room.plain}.",
            "Record less: --detail loops, or fewer --lines.",
        )


def _marks(launch: Prepared) -> Iterator[Unknown]:
    if not len(launch.region):
        yield Unknown(
            "what warps did between start and end",
            "no range was recorded.",
            "Run it under `ikp run --level machine --detail waits`, or put ranges into the kernel.",
        )
        return
    marked = np.bincount(launch.by_warp.slot, minlength=len(launch.start)) > 0
    empty = len(marked) - np.count_nonzero(marked)
    if empty:
        yield Unknown(
            f"what {empty:,} of {len(launch.start):,} warps did",
            "they recorded no range: what warps that wait for them wait for is unknown.",
            _who_is_missing(launch)
            or "Where roles have warps of their own, let those record, and mark what they do.",
        )
    life = int((launch.end - launch.start)[marked].sum())  # of the others it is said above
    dark = 1 - int(launch.inside[marked].sum()) / max(life, 1)
    if dark >= _DARK and not launch.launch.dropped:
        yield Unknown(
            f"what warps do in {100 * dark:.0f} % of their time",
            "it is in no range.",
            "Mark what lies between: --level machine --detail ops marks all that can wait.",
        )
    for text in launch.facts.lost if launch.facts else ():
        yield Unknown(
            "what a range takes that does not hold all that it is about, in the machine code",
            text,
            "ikp inspect shows where it is; ikp run --ranges marks it there.",
        )
    yield from _activities(launch)
    if launch.groups.by == "all" and launch.launch.warps_per_block > 1:
        yield Unknown(
            "which role is late",
            "warps have no roles, and all record the same ranges.",
            "Where warps are specialised, name them: ikp.role(ctx, 'producer').",
        )
    if not launch.has_payloads:
        yield Unknown(
            "which wait belongs to which copy or product",
            "no range has a payload.",
            "Give both the iteration: ikp.range('copy', k), ikp.range('wait full', k).",
        )
    if launch.facts is None:
        yield Unknown(
            "FLOPs, bytes and registers",
            _why_no_facts(launch),
            "Sessions on a GPU keep it where they find the code; --level machine always does.",
        )


def _activities(launch: Prepared) -> Iterator[Unknown]:
    """Yield the unknowns about the activities of ranges."""
    named = [launch.known[i] for i in np.flatnonzero(launch.counts).tolist()]
    dumb = [launch.names[i] for i in launch.regions([Activity.UNKNOWN]).tolist()]
    if dumb:
        yield Unknown(
            f"what {', '.join(dumb[:3])}{' and others' if len(dumb) > 3 else ''} is",
            "neither machine code nor a mark says it, and no word of the name does.",
            "Record with --level machine, which keeps what ranges hold.",
        )
    if named and not any(each.activity.waits for each in named):
        yield Unknown(
            "what warps wait for",
            "no range is a wait.",
            "Mark waits: --level machine --detail waits, or a range around each barrier's wait.",
        )


def _who_is_missing(launch: Prepared) -> str:
    """Return the advice on ranges of the code that no warp recorded; empty without any."""
    names = launch.unrecorded
    if not names:
        return ""
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"The kernel's code has ranges that no warp recorded, {some}: record the warps of these."


def _why_no_facts(launch: Prepared) -> str:
    said = launch.trace.provenance
    failed = said.get(f"{NO_FACTS}{launch.launch.label}") or said.get(f"{NO_FACTS}all")
    return (
        f"reading the machine code failed: {failed.removesuffix('.')}."
        if failed
        else ("the trace has nothing of the machine code.")
    )


def _comparisons(launch: Prepared, chosen: Chosen) -> Iterator[Unknown]:
    if len(chosen.durations) == 1:
        yield Unknown(
            "how launches differ",
            "there is one of this kernel.",
            "Record several: --launch 0:8.",
        )
    if len(launch.start) == 1:
        yield Unknown("how warps compare", "one warp recorded.")
