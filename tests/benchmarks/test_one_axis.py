"""What the program for two ranks says of a picture that was merged, and of one that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.one_axis import judge, read
from ikp.core.host_trace import HostSlice, HostTrace
from ikp.exporters.perfetto import PerfettoExporter
from ikp.profiling.merging import Merged
from ikp.trace import Trace
from tests.analysis.example import START, trace
from tests.host_traces.simulated import launches, records
from tests.trace_processor.server import open_trace

pytestmark = [pytest.mark.any_pins, pytest.mark.tp]

BEGINS = [0, 50_000, 120_000]
Change = Callable[[HostTrace], HostTrace]


def ranked(rank: int) -> Trace:
    """Return the launches of a rank, the first one in a graph's replay, a range in each warp."""
    made = launches(BEGINS)
    every = [replace(each, rank=rank, device=f"gpu (cuda:{rank})") for each in made.launches]
    every[0] = replace(every[0], replay="CUDA graph 1, replay 0, node 0")
    events = [(slot, 0, START + at + 100, START + at + 900) for slot, at in enumerate(BEGINS)]
    slots = [(launch, 0) for launch in range(len(BEGINS))]
    ranges = trace(events, launches=tuple(every), slots=slots)
    counts = {"attempted": ranges.slots.attempted, "kept": ranges.slots.kept}
    return replace(ranges, slots=replace(made.slots, **counts))


def host(collective: int) -> HostTrace:
    """Return what a host did; it begins a collective so many ns after the first launch."""
    made = records(BEGINS)
    at = START - (made.base_ns or 0)
    more = (
        HostSlice(1, "step", "user_annotation", at - 20_000, at + 90_000),
        HostSlice(1, "cudaGraphLaunch", "cuda_runtime", at - 9_900, at - 9_100, 90),
        HostSlice(0, "other", "kernel", at - 9_000, at - 8_000, 90),
        HostSlice(0, "ncclDevKernel_AllReduce", "kernel", at + collective, at + 40_000, 91),
    )
    return replace(made, slices=made.slices + more)


def picture(folder: Path, change: Change = lambda one: one) -> list[str]:
    """Write a picture of two ranks, the second one's host changed; return what is wrong in it."""
    paths = [folder / f"x.rank{rank}.pftrace" for rank in (0, 1)]
    hosts = [host(5_000), change(host(9_000))]
    for rank, (path, one) in enumerate(zip(paths, hosts, strict=True)):
        PerfettoExporter().write_beside(ranked(rank), path, [one], [{}])
    merged = Merged.of(paths, [ranked(rank) for rank in (0, 1)])
    said = {**merged.trace.provenance, "one_axis": "the times of both GPUs agree within 2.00 us"}
    whole = folder / "x.all.pftrace"
    replace(merged, trace=replace(merged.trace, provenance=said)).save(whole, force=True)
    with open_trace(whole) as processor:
        return judge(read(processor))


def test_a_picture_that_has_all_is_as_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert picture(tmp_path) == []
    said = capsys.readouterr().out
    for rank in (0, 1):
        assert f"rank {rank}: 1 operators and ranges of Python, 4 CUDA calls, 1 of them" in said
    assert said.count("3 launches, 1 of them in replays; 3 ranges of warps") == 2
    assert "the first end is 31.00 us after the last begin at least" in said


def test_launches_that_begin_before_their_records_by_less_than_the_bound_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def late(one: HostTrace) -> HostTrace:
        return replace(one, base_ns=(one.base_ns or 0) + 500)

    assert picture(tmp_path, late) == []
    assert (
        "3 of 3 launches within 1 us of their record, the worst 200 ns" in capsys.readouterr().out
    )


def without(kind: str) -> Change:
    return lambda one: replace(one, slices=tuple(x for x in one.slices if x.category != kind))


def nccl_moved(by_ns: int) -> Change:
    def moved(one: HostTrace) -> HostTrace:
        *others, last = one.slices
        at = {"start_ns": last.start_ns + by_ns, "end_ns": last.end_ns + by_ns}
        return replace(one, slices=(*others, replace(last, **at)))

    return moved


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("user_annotation"), "rank 1 has no python"),
        (without("cuda_driver"), "rank 1: 0 of 3 launches have a record"),
        (without("cuda_runtime"), "rank 1 has no graphs"),
        (without("kernel"), "rank 1 has no kernels"),
        (nccl_moved(200_000), "a collective ends 169000 ns before it has begun on both"),
        (lambda one: replace(one, slices=one.slices[:-1]), "rank 1: no collectives that it runs"),
    ],
)
def test_what_a_picture_lacks_is_said(change: Change, words: str, tmp_path: Path) -> None:
    wrong = picture(tmp_path, change)
    assert any(words in each for each in wrong), wrong
