"""What a trace tells of recording, beside what is true: of one call of ``benchmarks.put_aside``."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.put_aside import MODES, alone, durations, launches, profiled, record

BESIDE = 128
"""Calls, half of them recorded, that CUPTI times to judge by what a trace tells."""
AT_ONCE = 8
"""Calls after which what was recorded is dropped."""
AHEAD = 2_000_000
"""Cycles that the GPU is busy while a call is queued: what an idle GPU waits for is not timed."""


def judged(switch: Any, case: Any, mode: str, folder: Path) -> dict[str, Any]:
    """Return how many times as long recording made a call: as a trace says, and as it is.

    Launches are chosen as by ``ikp run``. What is true is found by as many pairs of calls, one
    recorded and one plain, as make its own error small: by CUPTI, and by events around the call.
    All calls are made alike, so that the GPU is in the same state.

    Returns:
        "measured" and "estimated" by the trace, and its "labels": ratio, error, way; "true" by
        CUPTI, and "by events", each with an error that holds in 95 of 100; the launches' "times".
    """
    from ikp.analysis.perturbation import perturbations
    from ikp.backends.timed import FURTHER, QUIET, timed
    from ikp.core.run_figures import TIMED
    from ikp.core.turns import IN_TURN

    in_call = launches(switch, case, mode)
    facts = switch.session.facts
    timed.report()  # of other details
    for key in [each for each in facts if each.startswith(TIMED)]:
        del facts[key]
    detail, switch.sample = MODES[mode]
    with alone(folder), switch.choosing(detail, IN_TURN):
        in_turn(switch, case, [None] * (IN_TURN[-1] + 1 + QUIET + FURTHER))
    trace = switch.session.trace  # decodes
    timed.report()
    times = {key: text for key, text in facts.items() if key.startswith(TIMED)}
    told = perturbations(replace(trace, provenance={**trace.provenance, **times}))
    estimated, spans = perturbations(trace), spans_us(trace)
    switch.session.reset()
    chosen = [mode if each.bit_count() % 2 else None for each in range(BESIDE)]  # Thue and Morse
    took = list[float]()

    def again() -> None:
        for at in range(0, BESIDE, AT_ONCE):
            took.extend(in_turn(switch, case, chosen[at : at + AT_ONCE]))
            switch.session.reset()

    with alone(folder):
        again()
        by_events, took = took.copy(), []
        events = profiled(again)
    switch.missing()
    by_cupti = [sum(us for _, us in one) for one in durations(events, len(chosen))]
    plain_us = statistics.median(by_cupti[at] for at, each in enumerate(chosen) if each is None)
    ways = {"measured": told, "estimated": estimated}
    return {
        **dict(zip(("true", "true error"), paired(by_cupti, chosen, plain_us), strict=True)),
        **dict(
            zip(("by events", "events error"), paired(by_events, chosen, plain_us), strict=True)
        ),
        **{way: 1 + longer_us(in_call, spans, each) / plain_us for way, each in ways.items()},
        "labels": {label: [one.ratio, one.error, one.way] for label, one in told.items()},
        "times": times,
    }


def paired(us: list[float], chosen: list[str | None], plain_us: float) -> tuple[float, float]:
    """Return how many times as long recorded calls took, and the error: each beside a plain one."""
    from ikp.backends._pairs import error, middle

    pairs = [((us[at], chosen[at]), (us[at + 1], chosen[at + 1])) for at in range(0, len(us), 2)]
    longer = [(one - two) * (1 if which else -1) for (one, which), (two, _) in pairs]
    return 1 + middle(longer) / plain_us, error(longer) / plain_us


def in_turn(switch: Any, case: Any, modes: list[str | None]) -> list[float]:
    """Make calls behind work, each at a mode; return the us between events around each."""
    import torch

    fresh, call = case
    flush = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
    took = list[float]()
    for mode in modes:
        arguments = fresh()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        flush.zero_()
        torch.cuda.synchronize()
        torch.cuda._sleep(AHEAD)  # noqa: SLF001
        first.record()
        kept = record(switch, lambda arguments=arguments: call(*arguments), mode)
        last.record()
        torch.cuda._sleep(100)  # noqa: SLF001
        torch.cuda.synchronize()
        took.append(1000 * first.elapsed_time(last))
        del kept
    return took


Place = tuple[str, tuple[int, ...]]
"""A launch's label and grid."""


def spans_us(trace: Any) -> dict[Place, float]:
    """Return the median time of a trace's launches, by label and grid."""
    from ikp.core.warps import launch_bounds

    found: dict[Place, list[float]] = defaultdict(list)
    first, last = launch_bounds(trace)
    for launch, begin, end in zip(trace.launches, first.tolist(), last.tolist(), strict=True):
        found[launch.label, tuple(launch.grid)].append((end - begin) / 1000)
    return {place: statistics.median(every) for place, every in found.items()}


def longer_us(
    in_call: list[dict[str, Any]], spans: dict[Place, float], found: dict[str, Any]
) -> float:
    """Return by how many us recording made a call's launches longer, as is said of each label."""
    return sum(
        spans.get((each["label"], tuple(each["grid"])), each["span_ns"] / 1000)
        * (1 - 1 / found[each["label"]].ratio)
        for each in in_call
        if each["label"] in found
    )
