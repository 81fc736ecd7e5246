"""Replays of CUDA graphs have slices of their own, and arrows lead from calls to all launches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ikp.core.host_trace import REPLAY, HostSlice, HostTrace, HostTrack
from ikp.exporters.perfetto import PerfettoExporter
from ikp.host_traces.placing import place, with_replays
from ikp.trace import Trace
from tests.analysis.example import START
from tests.host_traces.simulated import launches
from tests.trace_processor.query import columns
from tests.trace_processor.server import open_trace

pytestmark = pytest.mark.any_pins

BEGINS = [0, 500, 9_000]
"""The first two launches run at once, in two branches of one graph's replay."""
OFFSET = 5_000_000
CALLS = (7, 7, 8)


def replayed() -> Trace:
    """Return three launches, of the first two replays of a graph."""
    made = launches(BEGINS)
    wheres = ("replay 0, node 2", "replay 0, node 3", "replay 1, node 2")
    every = (
        replace(each, replay=f"CUDA graph 1, {where}", label=f"k{node}", grid=(node + 1, 1, 1))
        for node, (each, where) in enumerate(zip(made.launches, wheres, strict=True))
    )
    return replace(made, launches=tuple(every))


def recorded() -> HostTrace:
    """Return the calls and records of these, one of a kernel that is not recorded, and a call."""
    slices = [
        HostSlice(1, "cudaGraphLaunch", "cuda_runtime", OFFSET - 4000, OFFSET - 3000, 7),
        HostSlice(1, "cuGraphLaunch", "cuda_driver", OFFSET + 5000, OFFSET + 6000, 8),
        HostSlice(1, "cudaLaunchKernel", "cuda_runtime", OFFSET + 6000, OFFSET + 7000, 9),
        HostSlice(0, "other", "kernel", OFFSET - 1000, OFFSET - 500, 7),
        HostSlice(0, "alone", "kernel", OFFSET + 20_000, OFFSET + 21_000, 9),
    ]
    for node, (at, call) in enumerate(zip(BEGINS, CALLS, strict=True)):
        shape = {"grid": [node + 1, 1, 1], "block": [32, 1, 1]}
        times = OFFSET + at - 300, OFFSET + at + 2300
        slices.append(HostSlice(2 * (node == 1), f"k{node}", "kernel", *times, call, shape))
    streams = [HostTrack("GPU 0", f"stream {number}") for number in (7, 8)]
    tracks = streams[0], HostTrack("python 12", "thread 12"), streams[1]
    return HostTrace("host.json", START - OFFSET, tracks, tuple(slices))


def replays(host: HostTrace) -> list[tuple[str, int, int, str]]:
    return [
        (each.name, each.start_ns - OFFSET, each.end_ns - OFFSET, host.tracks[each.track].name)
        for each in host.slices
        if each.category == REPLAY
    ]


def test_a_replay_lasts_from_its_first_kernel_to_its_last() -> None:
    placed = place(replayed(), recorded())
    row = "replays of CUDA graphs"
    wanted = [
        ("CUDA graph 1, replay 0", -1000, 2800, row),
        ("CUDA graph 1, replay 1", 8700, 11_300, row),
    ]
    assert replays(placed.host) == wanted
    assert placed.host.slices[: len(recorded().slices)] == recorded().slices
    again = with_replays(placed.host, placed.trace.launches, placed.record)
    assert replays(again) == wanted, "they are there already"
    (name, *_), _ = replays(with_replays(recorded(), (), {}))
    assert name == "CUDA graph", "none of its launches was recorded"


@pytest.mark.tp
def test_arrows_lead_from_a_call_to_its_replay_and_from_each_record_to_its_launch(
    tmp_path: Path,
) -> None:
    placed, path = place(replayed(), recorded()), tmp_path / "x.pftrace"
    assert len(placed.record) == 3
    PerfettoExporter().write_beside(placed.trace, path, [placed.host], [placed.record])
    with open_trace(path) as processor:
        found = columns(
            processor,
            "select f.name as f, t.name as t, coalesce(t.category, '') as kind from flow "
            "join slice f on f.id = slice_out join slice t on t.id = slice_in order by t.ts, t.id",
        )
    arrows = list(zip(*(found[name].tolist() for name in ("f", "t", "kind")), strict=True))
    calls = [each for each in arrows if each[2] == REPLAY]
    assert calls == [
        ("cudaGraphLaunch", "CUDA graph 1, replay 0", REPLAY),
        ("cuGraphLaunch", "CUDA graph 1, replay 1", REPLAY),
    ]
    assert [each for each in arrows if each[2] == "kernel"] == [
        ("cudaLaunchKernel", "alone", "kernel")
    ]
    assert sorted(arrows) == sorted(
        [
            *calls,
            ("cudaLaunchKernel", "alone", "kernel"),
            *((f"k{node}", f"k{node}", "") for node in range(3)),
            *((f"k{node}", "block (0,0,0)", "") for node in range(3)),
        ]
    )
    (back,) = PerfettoExporter().read_beside(path)
    assert [each[:3] for each in replays(replace(back))] != [], "they are read back"
    numbers = {each.name: each.correlation for each in back.slices}
    assert [numbers[name] for name in ("k0", "k1", "k2", "other")] == [7, 7, 8, 7]
