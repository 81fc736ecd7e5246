"""A program of several ranks, which nobody edited: is all of it in one picture, on one axis?

    python -m benchmarks.one_axis OUT.pftrace [-o=OPTION ...] -- torchrun ... train.py

``ikp run --host`` leaves ``OUT.all.pftrace``. Perfetto's trace processor reads it (the ``perfetto``
package fetches that once; ``--check FILE`` reads a picture that is there), and printed are, for
each rank: slices of Python and operators, CUDA calls, launches of graphs, kernel records, ikp's
launches with those that are replays, ranges of warps; how far launches lie outside of their kernel
record; and between ranks, whether kernels of NCCL overlap as a collective's must.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from perfetto.trace_processor import TraceProcessor

SLACK_NS: Final = 1000
SHARE: Final = 0.999
"""Of launches must be within ``SLACK_NS`` of their kernel record."""
_CALLS: Final = ("cuda_runtime", "cuda_driver")
_GRAPH: Final = re.compile(r"cu(da)?GraphLaunch")
_OF_ALL: Final = re.compile(r"ncclDevKernel_(AllReduce|AllGather|ReduceScatter)")
"""Collectives that end nowhere before they have begun everywhere: a broadcast's sender may."""
_TRACKS: Final = "select id, name, parent_id from track"
_SLICES: Final = (
    "select s.id, s.ts, s.dur, s.name, s.category, s.track_id, "
    "extract_arg(s.arg_set_id, 'debug.replay') as replay, "
    "extract_arg(s.arg_set_id, 'debug.clock.kind') as clock, "
    "extract_arg(s.arg_set_id, 'debug.clock.unix_bound_ns') as bound from slice s"
)
_AXIS: Final = "select distinct display_value as text from args where key = '{}'"


@dataclass(slots=True)
class Rank:
    """What the picture has of one rank."""

    python: int = 0  # operators, ranges of record_function, functions
    calls: int = 0  # of CUDA's runtime and driver
    graphs: int = 0  # of these: launches of graphs
    replayed: int = 0  # replays of graphs, each a slice
    kernels: int = 0  # records of CUPTI
    launches: int = 0  # of ikp
    replays: int = 0  # of these: in replays of graphs
    ranges: int = 0  # of warps
    bound_ns: float = 0.0  # of its launches, the greatest
    overhang_ns: list[int] = field(default_factory=list)  # of launches, outside of their record
    collectives: list[tuple[str, int, int]] = field(default_factory=list)  # name, start, end

    @property
    def missing(self) -> list[str]:
        """The parts of the picture that this rank lacks."""
        parts = (
            "python",
            "calls",
            "graphs",
            "replayed",
            "kernels",
            "launches",
            "replays",
            "ranges",
        )
        return [name for name in parts if not getattr(self, name)]

    @property
    def inside(self) -> int:
        """Launches within ``SLACK_NS`` of their record."""
        return sum(each <= SLACK_NS for each in self.overhang_ns)


@dataclass(frozen=True, slots=True)
class Picture:
    """What the picture has of all ranks, and what the file says of how well they agree."""

    ranks: dict[int, Rank]
    agreement: str
    lost: int  # errors of the trace processor


def read(processor: TraceProcessor) -> Picture:
    """Return what a picture has, by Perfetto's trace processor."""
    tracks = {row.id: (row.name or "", row.parent_id) for row in processor.query(_TRACKS)}
    ranks: dict[int, Rank] = defaultdict(Rank)
    place: dict[int, tuple[int, int, str | None]] = {}  # of records and launches: times, kind
    owner: dict[int, Rank] = {}
    for row in processor.query(_SLICES):
        of = _rank(tracks, row.track_id)
        if of is not None:
            _count(ranks[of], row, tracks[row.track_id])
            place[row.id], owner[row.id] = (row.ts, row.ts + row.dur, row.category), ranks[of]
    for row in processor.query("select slice_out as o, slice_in as i from flow"):
        # Perfetto leads arrows forward in time: a launch that begins before its record, by less
        # than its bound, has the arrow to the record, and the call's arrow leads to the launch.
        ends = [(place[each], owner[each]) for each in (row.o, row.i) if each in place]
        records = [at for at, _ in ends if at[2] == "kernel"]
        launches = [(at, of) for at, of in ends if at[2] is None]
        for record, (launch, of) in zip(records, launches, strict=False):
            of.overhang_ns.append(max(record[0] - launch[0], launch[1] - record[1]))
    (lost,) = (
        row.n
        for row in processor.query(
            "select count(*) as n from stats where severity != 'info' and value > 0"
        )
    )
    said = [row.text for row in processor.query(_AXIS.format("debug.provenance.one_axis"))]
    return Picture(dict(sorted(ranks.items())), said[0] if said else "", lost)


def _rank(tracks: dict[int, tuple[str, int | None]], track: int) -> int | None:
    """Return the rank of a row, by the name of the group that it is in."""
    at: int | None = track
    while at is not None:
        name, above = tracks[at]
        at = above
    found = re.search(r"rank ?(\d+)", name)
    return int(found[1]) if found else None


def _count(rank: Rank, row: Any, track: tuple[str, int | None]) -> None:
    """Count one slice."""
    kind = row.category
    if kind is None:
        if row.clock is not None:
            rank.launches += 1
            rank.replays += bool(row.replay)
            rank.bound_ns = max(rank.bound_ns, row.bound or 0.0)
        elif track[0].startswith("warp ") and row.dur > 0:
            rank.ranges += 1
    elif kind in _CALLS:
        rank.calls += 1
        rank.graphs += bool(_GRAPH.match(row.name))
    elif kind == "kernel":
        rank.kernels += 1
        if _OF_ALL.match(row.name):
            rank.collectives.append((row.name, row.ts, row.ts + row.dur))
    elif kind == "graph_replay":
        rank.replayed += 1
    elif kind in ("cpu_op", "user_annotation", "python_function"):
        rank.python += 1


@dataclass(frozen=True, slots=True)
class Together:
    """Collectives of NCCL that two ranks ran together: in the same order, under the same names.

    ``earliest_ns`` is the least time from the last begin to the first end.
    """

    pairs: int
    earliest_ns: int
    ends_apart_ns: int  # the median of the times between both ends


def together(one: Rank, other: Rank) -> Together | None:
    """Return how the collectives of two ranks lie; None where they are not the same ones."""
    pairs = list(zip(sorted(one.collectives, key=_begin), sorted(other.collectives, key=_begin)))  # noqa: B905 - one may record longer
    if not pairs or any(a[0] != b[0] for a, b in pairs):
        return None
    apart = sorted(abs(a[2] - b[2]) for a, b in pairs)
    least = min(min(a[2], b[2]) - max(a[1], b[1]) for a, b in pairs)
    return Together(len(pairs), least, apart[len(apart) // 2])


def _begin(collective: tuple[str, int, int]) -> int:
    return collective[1]


def judge(picture: Picture) -> list[str]:
    """Print what a picture has; return in words what is not as asked for."""
    wrong = [f"{picture.lost} errors of the trace processor"] if picture.lost else []
    if len(picture.ranks) < 2:
        wrong.append(f"{len(picture.ranks)} ranks")
    for number, rank in picture.ranks.items():
        worst = max(rank.overhang_ns, default=0)
        print(
            f"rank {number}: {rank.python:,} operators and ranges of Python, {rank.calls:,} CUDA "
            f"calls, {rank.graphs} of them launches of graphs; {rank.replayed} replays; "
            f"{rank.kernels:,} kernel records; "
            f"{rank.launches} launches, {rank.replays} of them in replays; {rank.ranges:,} ranges "
            f"of warps; Unix time within {rank.bound_ns / 1e3:.2f} us; {rank.inside} of "
            f"{len(rank.overhang_ns)} launches within 1 us of their record, the worst {worst:,} ns"
        )
        wrong += [f"rank {number} has no {name}" for name in rank.missing]
        if len(rank.overhang_ns) < rank.launches:
            few = f"{len(rank.overhang_ns)} of {rank.launches}"
            wrong.append(f"rank {number}: {few} launches have a record")
        if rank.inside < SHARE * len(rank.overhang_ns):
            wrong.append(f"rank {number}: launches lie outside of their records")
    print(f"the file says: {picture.agreement or 'nothing of how the ranks agree'}")
    first, *others = picture.ranks.values()
    for number, rank in enumerate(others, 1):
        found = together(first, rank)
        if found is None:
            wrong.append(f"rank {number}: no collectives that it runs with the first rank")
            continue
        print(
            f"{found.pairs} collectives of both: the first end is {found.earliest_ns / 1e3:.2f} us "
            f"after the last begin at least; ends are {found.ends_apart_ns / 1e3:.2f} us apart"
        )
        bound = first.bound_ns + rank.bound_ns
        if found.earliest_ns < -bound:
            wrong.append(f"a collective ends {-found.earliest_ns} ns before it has begun on both")
    if not picture.agreement:
        wrong.append("no bound between ranks")
    return wrong


def main() -> None:
    """Parse the command line, run, and check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", type=Path, help="of the trace; with --check, of the picture")
    parser.add_argument("--check", action="store_true", help="run nothing")
    parser.add_argument("-o", action="append", default=[], help="an option of ikp run")
    parser.add_argument("command", nargs="*")
    given = parser.parse_args()
    path: Path = given.path
    if not given.check:
        options = ["--host", "--force", "--out", str(path), *given.o]
        command = [sys.executable, "-m", "ikp", "run", *options, *given.command]
        subprocess.run(command, check=True)
        path = path.with_name(f"{path.stem}.all{path.suffix}")
    from perfetto.trace_processor import TraceProcessor

    with TraceProcessor(trace=str(path)) as processor:
        wrong = judge(read(processor))
    if wrong:
        raise SystemExit(f"not as asked for: {'; '.join(wrong)}.")


if __name__ == "__main__":
    main()
