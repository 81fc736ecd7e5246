"""``place``: a trace of ikp and one of another profiler on one axis, by clocks or by launches."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic

import numpy as np
from numpy.typing import NDArray

from ikp.core.host_trace import MONOTONIC, REPLAY, HostSlice, HostTrace, HostTrack
from ikp.core.trace import AnyTrace, ClockFit, Launch, Trace
from ikp.core.warps import launch_bounds
from ikp.errors import UsageError
from ikp.host_traces.matching import (
    NEAR_NS,
    SLACK_NS,
    Matched,
    MatchGroup,
    Numbered,
    Spans,
    UnclearError,
    by_number,
    by_order,
    by_time,
    groups,
    line_through,
)

Ints = NDArray[np.int64]
WAYS: Final = ("clocks", "launches")
_MOST_MISFITS: Final = 0.01
"""The share of launches that may be outside of their records."""


@dataclass(frozen=True, slots=True)
class Placed(Generic[AnyTrace]):
    """Two traces on one axis, and which kernel record belongs to which launch."""

    trace: AnyTrace
    host: HostTrace  # its base is known
    way: str  # one of WAYS
    record: dict[int, int]  # by launch: the index of its record among the host's slices
    report: str


def place(trace: AnyTrace, host: HostTrace, way: str | None = None) -> Placed[AnyTrace]:
    """Return both traces on one axis of Unix time.

    By ``"clocks"``, both are what they are: ikp's launches must be aligned with the host's clock,
    and the other file must say when it began. By ``"launches"``, ikp's trace is moved onto the
    other's axis by a line through the middles of launches and of their kernel records. None takes
    the clocks where both are known.

    Raises:
        UsageError: a clock is not known, no launch has a record, launches and records can't be
            matched, or more than 1 % of launches are outside of their record.
    """
    aligned = all(
        each.clock.kind == "host" or each.clock.unix_bound_ns is not None for each in trace.launches
    )
    if host.monotonic:
        return _by_monotonic(trace, host, aligned)
    if way is None:
        way = "clocks" if aligned and host.base_ns is not None else "launches"
    return (_by_clocks if way == "clocks" else _by_launches)(trace, host, aligned)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Launches that ran, kernel records, and which of both may belong together."""

    where: list[int]  # the records' indices among the host's slices
    spans: Spans  # of launches
    records: Spans  # on the host's own axis
    alike: list[MatchGroup]
    known: dict[int, int]  # launch to record, by numbers that both have


def _candidates(trace: AnyTrace, host: HostTrace) -> _Candidates:
    where = [index for index, each in enumerate(host.slices) if each.is_kernel]
    records = [host.slices[index] for index in where]
    spans, ran = _spans(trace)
    ran &= _of_rank(trace, host)
    alike = [
        replace(each, launches=[one for one in each.launches if ran[one]])
        for each in groups(trace.launches, records)
    ]
    numbered = by_number(trace.launches, records)
    known = {each: index for each, index in numbered.record.items() if ran[each]}
    _check_numbers(numbered, host)
    return _Candidates(where, spans, Spans.of(records), alike, known)


def _by_clocks(trace: AnyTrace, host: HostTrace, aligned: bool) -> Placed[AnyTrace]:
    """Leave both traces where their clocks say that they are."""
    found = _candidates(trace, host)
    base = _base(host, aligned)
    there = found.records.moved(np.full(len(found.where), base))
    bound = max((each.clock.unix_bound_ns or 0.0 for each in trace.launches), default=0.0)
    matched = by_time(found.spans, there, found.alike, found.known)
    matched = matched.certain(SLACK_NS + bound, _MOST_MISFITS)
    if found.where and len(found.spans.middle):
        _check(matched, host, SLACK_NS + bound, "clocks")
    exactly = f"by clocks, at most {bound / 1e3:.2f} us off" if bound else "by the host's clock"
    return _placed(trace, replace(host, base_ns=base), "clocks", matched, found.where, exactly)


def _by_launches(trace: AnyTrace, host: HostTrace, _: bool) -> Placed[AnyTrace]:
    """Move ikp's trace by a line through the middles of launches and of their kernel records."""
    found = _candidates(trace, host)
    base, line = _line(found.spans, found.records, found.alike, found.known, host, trace)
    moved = _moved(trace, line)
    spans, _ran = _spans(moved)
    there = found.records.moved(np.full(len(found.where), base))
    matched = by_time(spans, there, found.alike, found.known)
    _check(matched, host, SLACK_NS, "launches")
    exactly = "by matching launches with kernel records"
    return _placed(moved, replace(host, base_ns=base), "launches", matched, found.where, exactly)


def _by_monotonic(trace: AnyTrace, host: HostTrace, aligned: bool) -> Placed[AnyTrace]:
    """Place a trace of functions, which has no kernels, by the host's two clocks.

    Raises:
        UsageError: these, or the launches' place in Unix time, are not known, or it is of another
            time, as files of different boots are.
    """
    apart = trace.provenance.get(MONOTONIC, "").partition(" | ")[0]
    if not apart or not aligned:
        why = "does not say how the host's clocks differed" if aligned else "is not aligned"
        raise UsageError(
            f"{host.source} has times of CLOCK_MONOTONIC, and the trace {why}. Record again with "
            "this version of ikp."
        )
    placed = replace(host, base_ns=int(apart), monotonic=False)
    check_overlap(trace, placed)
    said = f"{host.source}: placed by the host's clocks, to some us."
    known = {
        **trace.provenance,
        "joined": " ".join(filter(None, [trace.provenance.get("joined"), said])),
    }
    return Placed(replace(trace, provenance=known), placed, WAYS[0], {}, said)


def check_overlap(trace: Trace, host: HostTrace) -> None:
    """Refuse a file of another time, as of another boot: where no record shows that it fits.

    Args:
        trace: its launches have Unix times.
        host: its base is known.

    Raises:
        UsageError: no launch ran between its first event and its last one.
    """
    base, (first, last) = host.base_ns or 0, launch_bounds(trace)
    begins = base + min((each.start_ns for each in host.slices), default=0)
    ends = base + max((each.end_ns for each in host.slices), default=0)
    if not np.any((first <= last) & (first < ends) & (last > begins)):
        raise UsageError(
            f"no launch ran between the first and the last event of {host.source}: the files are "
            "of different runs or boots. Record both over the same time."
        )


def _of_rank(trace: Trace, host: HostTrace) -> NDArray[np.bool_]:
    """Return which launches the other profiler can have seen: those of its process's rank."""
    ranks = [each.rank for each in trace.launches]
    if host.rank is None or host.rank not in ranks:
        return np.ones(len(ranks), bool)
    return np.array([each == host.rank for each in ranks])


def _base(host: HostTrace, aligned: bool) -> int:
    """Return when the other trace began, if clocks can place it."""
    if host.base_ns is None:
        raise UsageError(
            f"{host.source} does not say when it began (baseTimeNanoseconds), so clocks can't "
            "place it. Place it by launches: --by launches."
        )
    if not aligned:
        raise UsageError(
            "times of this trace are those of a GPU's clock, not aligned with the host's: it was "
            "recorded without handshakes. Place it by launches: --by launches."
        )
    return host.base_ns


def _spans(trace: Trace) -> tuple[Spans, NDArray[np.bool_]]:
    """Return when launches ran, and of which of them any warp is known."""
    first, last = launch_bounds(trace)
    ran = last >= first
    return Spans(np.where(ran, first, 0), np.where(ran, last, 0)), ran


@dataclass(frozen=True, slots=True)
class _Line:
    """What to add to times: ``offset_ns`` at ``zero_ns``, and so much more a ns later."""

    zero_ns: int
    offset_ns: int
    slope: float

    def at(self, times: Ints) -> Ints:
        """Return the times on the other axis."""
        more = np.rint(self.slope * (times - self.zero_ns).astype(np.float64)).astype(np.int64)
        moved: Ints = times + self.offset_ns + more
        return moved


def _line(
    spans: Spans, there: Spans, alike: Any, known: Mapping[int, int], host: HostTrace, trace: Trace
) -> tuple[int, _Line]:
    """Return the other trace's base, and the line that moves ikp's trace onto its axis."""
    if len({(each.device, each.rank) for each in trace.launches}) > 1:
        raise UsageError(
            "launches of several GPUs or ranks can't be placed by launches: each GPU has a clock "
            "of its own. Join each rank's trace with its own file, or select one: "
            "ikp.edit.select(trace, rank=0)."
        )
    try:
        if known:
            launch, record = (np.array(each, np.int64) for each in zip(*known.items(), strict=True))
        else:
            launch, record = by_order(spans, there, alike)
    except UnclearError as error:
        raise UsageError(f"{host.source} can't be placed by launches: {error}.") from error
    at, apart = spans.middle[launch], there.middle[record] - spans.middle[launch]
    if host.base_ns is not None:
        return host.base_ns, _Line(*line_through(at, apart + host.base_ns))
    zero, offset, slope = line_through(at, apart)
    return -offset, _Line(zero, 0, slope)  # it has ikp's axis


def _moved(trace: AnyTrace, line: _Line) -> AnyTrace:
    tables: dict[str, Any] = {
        name: replace(table, start_ns=line.at(table.start_ns), end_ns=line.at(table.end_ns))
        for name in ("slots", "others", "events")
        for table in (getattr(trace, name),)
    }
    launches = tuple(replace(each, clock=_not_aligned(each.clock)) for each in trace.launches)
    return replace(trace, launches=launches, **tables)


def _not_aligned(clock: ClockFit) -> ClockFit:
    return replace(clock, unix_offset_ns=None, unix_bound_ns=None, unix_drift_ppm=None)


def _check_numbers(numbered: Numbered, host: HostTrace) -> None:
    """Refuse records that have the numbers of launches, and are of other kernels.

    Raises:
        UsageError: says how many.
    """
    wrong, right = len(numbered.odd), len(numbered.record)
    if wrong > _MOST_MISFITS * (wrong + right):
        raise UsageError(
            f"{wrong} of {wrong + right} launches have another grid or name than the kernel "
            f"records in {host.source} with their correlation ids: the files are of different "
            "runs, or the profiler lost calls. Record again."
        )


def _check(matched: Matched, host: HostTrace, slack_ns: float, way: str) -> None:
    """Refuse what does not fit.

    Raises:
        UsageError: says what, and why.
    """
    if not len(matched.launch):
        raise UsageError(
            f"no launch has a kernel record of its grid and block in {host.source} within "
            f"{NEAR_NS / 1e6:.0f} ms. The files are of different runs or boots, a clock was set "
            "between them, or the profiler did not see these kernels."
        )
    misfits = matched.misfits(slack_ns)
    if misfits > _MOST_MISFITS * len(matched.launch):
        other = WAYS[1 - WAYS.index(way)]
        raise UsageError(
            f"{misfits} of {len(matched.launch)} launches are outside of their kernel records in "
            f"{host.source} by more than {slack_ns / 1e3:.2f} us, the worst by "
            f"{matched.overhang.max() / 1e3:,.2f} us (placed by {way}): a clock was set while it "
            f"was recorded, or the files are of different runs. Try --by {other}."
        )


def _worst(overhang_ns: int) -> str:
    if overhang_ns <= 0:
        return "all of them inside"
    return f"the worst {overhang_ns / 1e3:.2f} us outside of it"


def _placed(
    trace: AnyTrace, host: HostTrace, way: str, matched: Matched, where: list[int], exactly: str
) -> Placed[AnyTrace]:
    inside = int((matched.overhang <= SLACK_NS).sum())
    said = [f"{host.source}: placed {exactly}"]
    if len(matched.launch):
        said.append(
            f"{inside:,} of {len(matched.launch):,} launches are within 1 us of their kernel "
            f"record, {_worst(int(matched.overhang.max()))}"
        )
    if matched.numbered:
        rest = len(matched.launch) - matched.numbered
        others = f", {rest:,} by grid, block, name and time" if rest else ""
        said.append(f"{matched.numbered:,} are matched by correlation id{others}")
    if matched.unclear:
        said.append(f"{matched.unclear:,} lie within two records: their kernel ran twice at once")
    seen = _of_rank(trace, host).tolist()
    on_gpus = sum(
        mine and each.clock.kind != "host" for mine, each in zip(seen, trace.launches, strict=True)
    )
    if missing := on_gpus - len(matched.launch):
        said.append(f"launches without a kernel record there: {missing:,}")
    report = "; ".join(said) + "."
    before = trace.provenance.get("joined")
    known = {**trace.provenance, "joined": f"{before} {report}" if before else report}
    pairs = zip(matched.launch.tolist(), matched.record.tolist(), strict=True)
    record = {launch: where[each] for launch, each in pairs}
    host = with_replays(host, trace.launches, record)
    return Placed(replace(trace, provenance=known), host, way, record, report)


_CALL: Final = re.compile(r"cu(da)?GraphLaunch(_ptsz)?$")
_ON_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_UNNAMED: Final = "CUDA graph"
_TRACK: Final = "replays of CUDA graphs"
_Replay = tuple[str, int | None]
"""A GPU's group of tracks, and the correlation id of the call that replays."""


def _replays(host: HostTrace, calls: Container[int | None]) -> dict[_Replay, tuple[int, int]]:
    """Return when what each call starts on each GPU began and ended."""
    spans: dict[_Replay, tuple[int, int]] = {}
    for each in host.slices:
        if each.correlation in calls and each.category in _ON_GPU:
            key = host.tracks[each.track].group, each.correlation
            start, end = spans.get(key, (each.start_ns, each.end_ns))
            spans[key] = min(start, each.start_ns), max(end, each.end_ns)
    return spans


def _names(
    host: HostTrace, launches: Sequence[Launch], record: Mapping[int, int]
) -> dict[int | None, str]:
    """Return what the graph is called that a call replays, where a launch of it was recorded."""
    return {
        host.slices[index].correlation: launches[launch].replay.rpartition(", ")[0]
        for launch, index in record.items()
        if launches[launch].replay
    }


def with_replays(
    host: HostTrace, launches: Sequence[Launch], record: Mapping[int, int]
) -> HostTrace:
    """Return a trace with a slice for each replay of a graph, on one more track of its GPU.

    All that a call of ``cudaGraphLaunch`` starts has the call's correlation id. A replay of which a
    launch was recorded has the number of its graph, and its own.

    Args:
        host: its slices keep their indices; it may have replays already.
        launches: of ikp's trace.
        record: by launch, the index of its record among the slices.
    """
    calls = {each.correlation for each in host.slices if _CALL.match(each.name)} - {None}
    if not calls or any(each.category == REPLAY for each in host.slices):
        return host
    names = _names(host, launches, record)
    spans = _replays(host, calls)
    gpus = list(dict.fromkeys(group for group, _ in spans))
    tracks = (*host.tracks, *(HostTrack(group, _TRACK) for group in gpus))
    at = {group: number for number, group in enumerate(gpus, len(host.tracks))}
    replays = tuple(
        HostSlice(at[group], names.get(call, _UNNAMED), REPLAY, start, end, call)
        for (group, call), (start, end) in sorted(spans.items(), key=lambda item: item[1])
    )
    return replace(host, tracks=tracks, slices=host.slices + replays)
