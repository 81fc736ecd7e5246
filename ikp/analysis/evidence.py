"""``Evidence`` of each launch label: what was recorded, what was lost, how well the clocks fit."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.perturbation import Perturbation, perturbations
from ikp.core import abi
from ikp.core.host_clock import BOOT, of_several_hosts
from ikp.core.warps import launch_bounds, seen_warps
from ikp.terminal import printable

if TYPE_CHECKING:
    from ikp.core.trace import ClockFit, Launch, Trace

_Ints = NDArray[np.int64]
_One = TypeVar("_One")


_UNKNOWN_RESIDUAL = "residual unknown: no spare anchors"
"""The note on a clock that was fitted through as many clock anchors as it has unknowns."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was recorded under one launch label, and how well.

    ``residence_ns`` is the sum over the label's warps of the time from ``init`` to ``finish``. A
    launch's duration is from its first warp's ``init`` to its last one's ``finish``: the fields
    hold the median of the label's launches, the shortest and the longest. ``recordable`` is how
    many warps the launches had, of which ``warps`` recorded; ``blocks_recorded`` of
    ``blocks_launched`` did. ``ghz`` is the mean clock rate of the launches, where the clock counts
    SM cycles. ``capacity`` is the fewest records per warp that a launch had room for, ``needed``
    the most records that any one warp attempted. The clock residuals are the worst of its launches,
    and None where that of any is unknown. ``perturbation`` is how much longer recording made the
    launches; None where that is not known.
    """

    launch: str
    launches: int
    devices: tuple[str, ...]
    backends: tuple[str, ...]
    warps: int
    residence_ns: int
    duration_ns: float
    duration_min_ns: int
    duration_max_ns: int
    blocks: tuple[int, ...]  # of one launch, where they differ each number once
    warps_per_block: tuple[int, ...]
    recordable: int
    ghz: float | None
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
    blocks_recorded: int = 0  # of all launches: blocks of which a warp recorded
    blocks_launched: int = 0
    perturbation: Perturbation | None = None

    @property
    def dropped(self) -> int:
        """Records attempted but not kept, as far as known."""
        return self.attempted - self.kept

    @property
    def counts_cycles(self) -> bool:
        """Whether all launches were timed in SM cycles."""
        return self.ghz is not None

    def lost(self) -> str:
        """Return in one line which share of the records was lost; empty where none was."""
        lost = lost_records(self.dropped, self.attempted, self.unfinished, _record(self))
        return f"{_name(self)}: {lost}" if lost else ""

    def facts(self) -> str:
        """Return in one line what was recorded, where, and how well."""
        return f"{_name(self)}: {_source(self)}; {_records(self)}; {_clock(self)}."

    def recording(self) -> str:
        """Return in one line what recording did to the launches; empty where that is not known."""
        return f"{_name(self)}: {self.perturbation.sentence()}." if self.perturbation else ""

    def warnings(self) -> list[str]:
        """Return in words what was lost, and the notes of the recording; empty if all is well.

        Losses of all launches are summed up in one line, so the notes of single launches on losses
        are left out.
        """
        found = _losses(self)
        if self.notes:
            from ikp.core.decoding.losses import tells_loss  # imports all of decoding

            notes = (note for note in self.notes if not tells_loss(note))
            found += (f"{_name(self)}: {printable(note)}." for note in notes)
        return found


def about(trace: Trace) -> tuple[str, ...]:
    """Return lines on the trace as a whole: read-back, clocks of GPUs and host, ranks, edits."""
    facts, lines = trace.provenance, []
    if "copied_out_s" in facts and "decoded_s" in facts:
        lines.append(
            f"finalize: records copied out in {facts['copied_out_s']} s, decoded in "
            f"{facts['decoded_s']} s."
        )
    if "launches_waited_s" in facts:
        lines.append(
            f"launches waited {facts['launches_waited_s']} s until earlier ones were read back: "
            "record fewer, by --launch or --kernel, and the program is faster."
        )
    lines += map(_aligned, *_by_device(trace.launches))
    lines += (line.format(facts[name]) for name, line in _LINES.items() if name in facts)
    if of_several_hosts(facts):
        lines.append(SEVERAL_HOSTS)
    return tuple(map(printable, lines))


SEVERAL_HOSTS: Final = (
    "times are of several hosts, or boots of one, with a clock each: they agree only as far as "
    "these clocks did, and no bound holds between them."
)
"""The line on a trace whose launches have times of several clocks."""
_LINES: Final = {
    "clock_steps": "the host's clock was set while this was recorded: {}.",
    "mps": "{}: shared by MPS, so that kernels of other processes may have run at the same time, "
    "which no trace of this process shows.",
    "one_axis": "{}.",
    "joined": "joined with {}",
    "ranks": "{}.",
    "overhead_deducted": "recording's overhead deducted: {}.",
    "edited": "edited: {}.",
}
"""Lines on a trace as a whole, by the provenance's fact that each is about."""


def agreement(trace: Trace) -> str:
    """Return in words how well the times of several GPUs agree; empty where that is not known.

    Each is within its bound of one host's clock: two differ by at most the sum of theirs.
    """
    devices, clocks = _by_device(trace.launches)
    bounds = [each.unix_bound_ns for of_one in clocks for each in of_one]
    one_clock = BOOT in trace.provenance and not of_several_hosts(trace.provenance)
    if len(devices) < 2 or None in bounds or not one_clock:
        return ""
    worst = sorted(max(each.unix_bound_ns or 0.0 for each in of_one) for of_one in clocks)[-2:]
    which = "both GPUs" if len(devices) == 2 else f"any two of {len(devices)} GPUs"
    return f"the times of {which} agree within {sum(worst) / 1e3:.2f} us, the sum of their bounds"


def _by_device(launches: Sequence[Launch]) -> tuple[list[str], list[list[ClockFit]]]:
    """Return the GPUs, each with its rank where there are several, and their launches' clocks."""
    ranked = len({each.rank for each in launches}) > 1
    found: dict[str, list[ClockFit]] = {}
    for each in launches:
        if each.clock.kind != "host":
            name = f"rank {each.rank}, {each.device}" if ranked else each.device
            found.setdefault(name, []).append(each.clock)
    return list(found), list(found.values())


def _aligned(device: str, clocks: list[ClockFit]) -> str:
    """Return in one line how well the times of a GPU are Unix times."""
    bounds = [each.unix_bound_ns for each in clocks if each.unix_bound_ns is not None]
    if len(bounds) < len(clocks):
        few = f" ({len(clocks) - len(bounds)} of {len(clocks)} launches)" if bounds else ""
        return f"{device}: GPU clock, not aligned with the host's{few}."
    offset, drift = clocks[0].unix_offset_ns or 0.0, clocks[0].unix_drift_ppm
    moves = "" if drift is None else f", drift {drift:+.2f} ppm"
    return (
        f"{device}: Unix time, at most {max(bounds) / 1e3:,.2f} us off; the GPU's clock was "
        f"{abs(offset) / 1e3:,.1f} us {'behind' if offset >= 0 else 'ahead'}{moves}."
    )


def collect_warnings(trace: Trace) -> tuple[str, ...]:
    """Return in words what was lost, and the notes of the recording, of all labels."""
    wanted = {
        each.label
        for each in trace.launches
        if each.dropped or each.unfinished or each.relaunches or each.notes
    }
    every = collect_evidence(trace, wanted) if wanted else ()
    return tuple(line for evidence in every for line in evidence.warnings())


def collect_evidence(trace: Trace, wanted: Container[str] | None = None) -> tuple[Evidence, ...]:
    """Return one :class:`Evidence` per launch label, in the order of the labels' first launches.

    Args:
        trace: the trace.
        wanted: the labels; all, unless they are named.
    """
    warps, found = _Warps.of(trace), perturbations(trace)
    labels: dict[str, list[int]] = {}
    for index, launch in enumerate(trace.launches):
        if wanted is None or launch.label in wanted:
            labels.setdefault(launch.label, []).append(index)
    return tuple(
        replace(
            _of_label(label, [trace.launches[i] for i in members], warps.take(members)),
            perturbation=found.get(label),
        )
        for label, members in labels.items()
    )


@dataclass(frozen=True, slots=True)
class _Warps:
    """Columns by launch, of the warps that recorded: warps, blocks, times, records attempted."""

    count: _Ints
    blocks: _Ints
    residence_ns: _Ints
    duration_ns: _Ints
    needed: _Ints

    @classmethod
    def of(cls, trace: Trace) -> _Warps:
        slots, launches = trace.slots, len(trace.launches)
        count = np.bincount(slots.launch, minlength=launches)
        ran, needed = np.zeros(launches, np.int64), np.zeros(launches, np.int64)
        np.add.at(ran, slots.launch, slots.end_ns - slots.start_ns)
        np.maximum.at(needed, slots.launch, slots.attempted)
        first, last = launch_bounds(trace)
        seen = seen_warps(trace.launches, slots)
        blocks = np.array([one.blocks for one in seen], np.int64)
        return cls(count, blocks, ran, np.where(count > 0, last - first, 0), needed)

    def take(self, launches: list[int]) -> _Warps:
        """Return the rows of some launches."""
        return _Warps(*(getattr(self, one.name)[launches] for one in fields(self)))


def _each(launches: list[Launch], name: str) -> list[Any]:
    """Return a field of all launches."""
    return [getattr(launch, name) for launch in launches]


def _of_label(label: str, launches: list[Launch], warps: _Warps) -> Evidence:
    ran = warps.duration_ns[warps.count > 0] if warps.count.any() else np.zeros(1, np.int64)
    blocks = [prod(grid) for grid in _each(launches, "grid")]
    return Evidence(
        launch=label,
        launches=len(launches),
        devices=_distinct(_each(launches, "device")),
        backends=_distinct(_each(launches, "backend")),
        warps=int(warps.count.sum()),
        residence_ns=int(warps.residence_ns.sum()),
        duration_ns=float(np.median(ran)),
        duration_min_ns=int(ran.min()),
        duration_max_ns=int(ran.max()),
        blocks=_distinct(blocks),
        warps_per_block=_distinct(_each(launches, "warps_per_block")),
        recordable=sum(prod(launch.grid) * launch.warps_per_block for launch in launches),
        ghz=_ghz(launches),
        attempted=sum(_each(launches, "attempted")),
        kept=sum(_each(launches, "kept")),
        capacity=min(_each(launches, "capacity")),
        needed=int(warps.needed.max()),
        unfinished=sum(_each(launches, "unfinished")),
        relaunches=sum(_each(launches, "relaunches")),
        clock=_distinct(launch.clock.name for launch in launches),
        clock_rate=_distinct(launch.clock.rate for launch in launches),
        residual_sd_ns=_worst(launch.clock.residual_sd_ns for launch in launches),
        residual_max_ns=_worst(launch.clock.residual_max_ns for launch in launches),
        notes=_distinct(note for launch in launches for note in launch.notes),
        modes=_distinct(_each(launches, "mode")),
        needed_bytes=max(_each(launches, "needed_bytes")),
        blocks_recorded=int(warps.blocks.sum()),
        blocks_launched=sum(blocks),
    )


def _worst(residuals: Iterable[float | None]) -> float | None:
    worst = 0.0
    for residual in residuals:
        if residual is None:
            return None
        worst = max(worst, residual)
    return worst


def _ghz(launches: list[Launch]) -> float | None:
    if any(launch.clock.kind != "cycles" for launch in launches):
        return None
    return sum(1 / launch.clock.ns_per_tick for launch in launches) / len(launches)


def _distinct(values: Iterable[_One]) -> tuple[_One, ...]:
    return tuple(dict.fromkeys(values))


def _source(evidence: Evidence) -> str:
    backends = "/".join(evidence.backends)
    launches = plural(evidence.launches, f"{backends} launch", f"{backends} launches")
    devices = printable(" + ".join(evidence.devices))
    return f"{launches}, {plural(evidence.warps, 'warp')} on {devices}"


def _name(evidence: Evidence) -> str:
    return printable(evidence.launch)


def _records(evidence: Evidence) -> str:
    record = _record(evidence)
    if not evidence.dropped:
        return f"{plural(evidence.kept, record)}, none dropped"
    return f"{evidence.dropped:,} of {evidence.attempted:,} {record}s dropped"


def _record(evidence: Evidence) -> str:
    """Return what one record is called: ``"total"`` or ``"record"``."""
    return "total" if evidence.modes == ("totals",) else "record"


def _clock(evidence: Evidence) -> str:
    clock = f"clock {' + '.join(evidence.clock)} ({' + '.join(evidence.clock_rate)})"
    if evidence.clock_rate == ("exact",) and not evidence.residual_max_ns:
        return clock
    if evidence.residual_sd_ns is None or evidence.residual_max_ns is None:
        return f"{clock}, {_UNKNOWN_RESIDUAL}"
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
            f"{_name(evidence)}: a warp can keep {room} here and one attempted "
            f"{evidence.needed:,}: the figures count only the kept ones.{remedy}"
        )
    if evidence.unfinished:
        lines.append(
            f"{_name(evidence)}: {plural(evidence.unfinished, 'warp')} never reached finish: "
            + (
                "their totals are lost."
                if "totals" in evidence.modes
                else "what they dropped is unknown."
            )
        )
    if evidence.relaunches:
        earlier = plural(evidence.relaunches, "earlier launch", "earlier launches")
        lines.append(
            f"{_name(evidence)}: the records of {earlier} in the same buffer were overwritten."
        )
    return lines


def lost_records(dropped: int, attempted: int, unfinished: int, what: str = "record") -> str:
    """Return which share of the records was lost, for the head of a report made of the others.

    Empty where none was lost.
    """
    if dropped:
        share = 100 * dropped / max(attempted, 1)
        part = f"{share:.1f} %"
        if part == "0.0 %":
            part = "less than 0.1 %"
        elif part == "100.0 %" and dropped < attempted:
            part = "more than 99.9 %"
        return f"{part} of the {what}s were lost ({dropped:,} of {attempted:,})"
    if unfinished:
        return (
            f"{plural(unfinished, 'warp')} never finished: how many {what}s were lost is not known"
        )
    return ""


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return ``"1 warp"`` or ``"1,024 warps"``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
