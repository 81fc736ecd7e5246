"""What a reader must know before trusting a trace's numbers: losses, and how well clocks fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ikp.core import abi
from ikp.core.decoding.losses import tells_loss

if TYPE_CHECKING:
    from ikp.core.trace import Launch, Trace


UNKNOWN_RESIDUAL = "residual unknown: no spare anchors"
"""Said of a clock that was fitted through as many anchors as it has unknowns."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was recorded under one launch label, and how well.

    ``residence_ns`` is the sum over the label's warps of the time from ``init`` to ``finish``.
    ``capacity`` is the smallest room for records per warp of its launches, ``needed`` the most
    records that any one warp attempted. The clock residuals are the worst of its launches, and None
    where that of any is unknown.
    """

    launch: str
    launches: int
    devices: tuple[str, ...]
    backends: tuple[str, ...]
    warps: int
    residence_ns: int
    attempted: int
    kept: int
    capacity: int
    needed: int
    unfinished: int
    relaunches: int
    clock: tuple[str, ...]
    clock_rate: tuple[str, ...]
    residual_sd_ns: float | None
    residual_max_ns: float | None
    notes: tuple[str, ...]
    modes: tuple[str, ...] = ("timeline",)
    needed_bytes: int = 0  # the largest buffer that any of its launches needed to keep all

    @property
    def dropped(self) -> int:
        """Records attempted but not kept, as far as known."""
        return self.attempted - self.kept

    def facts(self) -> str:
        """Return in one line what was recorded, where, and how well."""
        return f"{self.launch}: {_source(self)}; {_records(self)}; {_clock(self)}."

    def warnings(self) -> list[str]:
        """Return in words what was lost, and the notes of the recording; empty if all is well.

        Losses of all launches are told together, so that the notes of each are left out.
        """
        notes = (note for note in self.notes if not tells_loss(note))
        return [*_losses(self), *(f"{self.launch}: {note}." for note in notes)]


def about(trace: Trace) -> tuple[str, ...]:
    """Return in words what concerns the trace as a whole: what it cost, its ranks, its edits."""
    facts, lines = trace.provenance, []
    if "copied_out_s" in facts and "decoded_s" in facts:
        lines.append(
            f"finalize: records copied out in {facts['copied_out_s']} s, decoded in "
            f"{facts['decoded_s']} s."
        )
    if "ranks" in facts:
        lines.append(f"{facts['ranks']}.")
    if "overhead_deducted" in facts:
        lines.append(f"recording's overhead deducted: {facts['overhead_deducted']}.")
    if "edited" in facts:
        lines.append(f"edited: {facts['edited']}.")
    return tuple(lines)


def collect_evidence(trace: Trace) -> tuple[Evidence, ...]:
    """Return one :class:`Evidence` per launch label, in the order of the labels' first launches."""
    count = len(trace.launches)
    of_slot = trace.slots.launch
    warps = np.bincount(of_slot, minlength=count)
    # Floats sum exactly here up to 2**53 ns, which is 104 days of residence time.
    spans = np.bincount(of_slot, trace.slots.end_ns - trace.slots.start_ns, minlength=count)
    needed = np.zeros(count, np.int64)
    np.maximum.at(needed, of_slot, trace.slots.attempted)
    labels: dict[str, list[int]] = {}
    for index, launch in enumerate(trace.launches):
        labels.setdefault(launch.label, []).append(index)
    return tuple(
        _of_label(
            label,
            [trace.launches[i] for i in members],
            warps=int(warps[members].sum()),
            residence_ns=int(spans[members].sum()),
            needed=int(needed[members].max()),
        )
        for label, members in labels.items()
    )


def _of_label(
    label: str, launches: list[Launch], *, warps: int, residence_ns: int, needed: int
) -> Evidence:
    return Evidence(
        launch=label,
        launches=len(launches),
        devices=_distinct(launch.device for launch in launches),
        backends=_distinct(launch.backend for launch in launches),
        warps=warps,
        residence_ns=residence_ns,
        attempted=sum(launch.attempted for launch in launches),
        kept=sum(launch.kept for launch in launches),
        capacity=min(launch.capacity for launch in launches),
        needed=needed,
        unfinished=sum(launch.unfinished for launch in launches),
        relaunches=sum(launch.relaunches for launch in launches),
        clock=_distinct(launch.clock.name for launch in launches),
        clock_rate=_distinct(launch.clock.rate for launch in launches),
        residual_sd_ns=_worst(launch.clock.residual_sd_ns for launch in launches),
        residual_max_ns=_worst(launch.clock.residual_max_ns for launch in launches),
        notes=_distinct(note for launch in launches for note in launch.notes),
        modes=_distinct(launch.mode for launch in launches),
        needed_bytes=max(launch.needed_bytes for launch in launches),
    )


def _worst(residuals: Iterable[float | None]) -> float | None:
    worst = 0.0
    for residual in residuals:
        if residual is None:
            return None
        worst = max(worst, residual)
    return worst


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _source(evidence: Evidence) -> str:
    backends = "/".join(evidence.backends)
    launches = plural(evidence.launches, f"{backends} launch", f"{backends} launches")
    return f"{launches}, {plural(evidence.warps, 'warp')} on {' + '.join(evidence.devices)}"


def _records(evidence: Evidence) -> str:
    record = _record(evidence)
    if not evidence.dropped:
        return f"{plural(evidence.kept, record)}, none dropped"
    return f"{evidence.dropped:,} of {evidence.attempted:,} {record}s dropped"


def _record(evidence: Evidence) -> str:
    """Return what one record is: a total of a region, or an event."""
    return "total" if evidence.modes == ("totals",) else "record"


def _clock(evidence: Evidence) -> str:
    clock = f"clock {' + '.join(evidence.clock)} ({' + '.join(evidence.clock_rate)})"
    if evidence.clock_rate == ("exact",) and not evidence.residual_max_ns:
        return clock
    if evidence.residual_sd_ns is None or evidence.residual_max_ns is None:
        return f"{clock}, {UNKNOWN_RESIDUAL}"
    return (
        f"{clock}, residual {evidence.residual_sd_ns:.0f} ns sd, "
        f"{evidence.residual_max_ns:.0f} ns max"
    )


def _losses(evidence: Evidence) -> list[str]:
    lines = []
    if evidence.dropped:
        room = f"{evidence.capacity:,} {_record(evidence)}s"
        remedy = (
            f" prof.buffer({evidence.launch!r}, size={evidence.needed_bytes}) would have held all."
            if 0 < evidence.needed_bytes <= abi.MAX_SEGMENT_BYTES
            else ""
        )
        lines.append(
            f"{evidence.launch}: a warp can keep {room} here and one attempted "
            f"{evidence.needed:,}: the figures count only the kept ones.{remedy}"
        )
    if evidence.unfinished:
        lines.append(
            f"{evidence.launch}: {plural(evidence.unfinished, 'warp')} never reached finish: "
            + (
                "their totals are lost."
                if "totals" in evidence.modes
                else "what they dropped is unknown."
            )
        )
    if evidence.relaunches:
        earlier = plural(evidence.relaunches, "earlier launch", "earlier launches")
        lines.append(
            f"{evidence.launch}: the records of {earlier} in the same buffer were overwritten."
        )
    return lines


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return ``"1 warp"`` or ``"1,024 warps"``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
