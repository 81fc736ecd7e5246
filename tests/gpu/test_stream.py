"""Streams on a GPU: records that the host reads while the kernel runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

import ikp  # noqa: E402
from ikp.core import abi  # noqa: E402
from ikp.edit.deduct import DEDUCTED  # noqa: E402
from ikp.session.lifting import Drain  # noqa: E402
from tests.gpu.held import held  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*records dropped:ikp.IkpWarning"),
]

BLOCKS = 128
WARPS = 4


@triton.jit
def tasks(out, n, prof, STEPS: tl.constexpr):
    """Record n ranges in each warp, numbered by their payloads."""
    ikp.init(prof)
    value = tl.zeros((128,), tl.float32)
    for i in range(n):
        with ikp.range("task", i):
            for _ in range(STEPS):
                value = value * 0.999 + 1.0
    tl.store(out + tl.program_id(0) * 128 + tl.arange(0, 128), value)


def run(n: int, prof: Any, steps: int = 1500) -> tuple[Any, float]:
    out = torch.empty(BLOCKS * 128, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    tasks[(BLOCKS,)](out, n, prof, STEPS=steps, num_warps=WARPS)
    end.record()
    torch.cuda.synchronize()
    return out, begin.elapsed_time(end)


def check_order(trace: ikp.Trace, n: int) -> None:
    """Every record is one that its warp wrote, in the order in which it did."""
    events, (launch,) = trace.events, trace.launches
    assert launch.attempted == n * BLOCKS * WARPS
    assert launch.kept == len(events) == launch.attempted - launch.dropped
    new_slot = np.flatnonzero(np.diff(events.slot)) + 1
    steps = np.diff(events.payload.astype(np.int64))
    inside = np.ones(len(steps), bool)
    inside[new_slot - 1] = False
    assert (steps[inside] > 0).all()
    assert (events.payload < n).all()
    same = np.r_[False, inside]
    assert (events.start_ns[same] >= np.r_[0, events.end_ns[:-1]][same] - 2).all()
    assert (events.end_ns >= events.start_ns).all()


def size_of(records: int) -> int:
    return abi.segment_bytes(BLOCKS * WARPS, records)


@pytest.mark.parametrize("clock", ["cycles", "cycles64"])
def test_four_million_records_through_a_ring_of_8_mb(clock: str) -> None:
    n = 4_000_000 // (BLOCKS * WARPS)
    plain, _ = run(n, None)
    with ikp.profile(overflow="stream", clock=clock) as prof:
        size = size_of(1024) if clock == "cycles" else size_of(2048)
        out, _ = run(n, prof.buffer("tasks", size=size))
    assert torch.equal(out, plain)
    trace = prof.trace
    check_order(trace, n)
    share = trace.launches[0].kept / trace.launches[0].attempted
    print(f"kept {share:.4f}")
    assert share > 0.9, "a host that has nothing else to do keeps up with 2 GB/s"


def test_a_host_that_stops_reading_costs_the_kernel_nothing(monkeypatch: Any) -> None:
    n = 4000
    run(n, None)
    times = []
    for dead in (False, True, False, True, False, True):
        with monkeypatch.context() as patch, ikp.profile(overflow="stream") as prof:
            if dead:
                patch.setattr(Drain, "step", lambda _: None)
            times.append(run(n, prof.buffer("tasks", size=size_of(256)))[1])
        check_order(prof.trace, n)
        if dead:
            assert prof.trace.launches[0].kept == 256 * BLOCKS * WARPS
    print(times)
    assert min(times[1::2]) < 1.1 * min(times[::2])


def test_counts_are_there_before_the_kernel_ends() -> None:
    n = 20_000
    run(10, None)
    with ikp.profile(overflow="stream") as prof:
        out = torch.empty(BLOCKS * 128, device="cuda")
        tasks[(BLOCKS,)](out, n, prof.buffer("tasks", size=size_of(1024)), STEPS=5000,
                         num_warps=WARPS)  # fmt: skip
        time.sleep(0.05)
        done = torch.cuda.current_stream().query()
        (taken,) = prof._recording._taken
        source = taken.drain.source()
        seen = int(source.data.counts.sum())
        assert not done and not torch.cuda.current_stream().query(), "it ended too early"
    assert 0 < seen < n * BLOCKS * WARPS
    check_order(prof.trace, n)


@triton.jit
def waits(flag, out, n, prof):
    """Do n tasks, and wait for a flag, which another block may have to set."""
    ikp.init(prof)
    value = tl.zeros((128,), tl.float32)
    for i in range(n):
        with ikp.range("task", i):
            value = value * 0.5 + 1.0
    with ikp.range("wait for the flag"):
        while tl.load(flag, volatile=True) == 0:
            pass
    with ikp.range("after it"):
        tl.store(out + tl.program_id(0) * 128 + tl.arange(0, 128), value + tl.program_id(0))


@pytest.mark.parametrize("clock", ["cycles", "globaltimer", "cycles64"])
def test_a_kernel_that_hangs_shows_where_and_goes_on(clock: str) -> None:
    blocks, n = 32, 3000
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    one = torch.ones(1, dtype=torch.int32).pin_memory()
    plain, out = (torch.zeros(blocks * 128, device="cuda") for _ in range(2))
    waits[(blocks,)](one.cuda(), plain, n, None, num_warps=WARPS)
    beside = torch.cuda.Stream()
    with ikp.profile(overflow="stream", clock=clock) as prof:
        warm = prof.buffer("warm up", size=1 << 20)
        waits[(blocks,)](one.cuda(), plain, n, warm, num_warps=WARPS)
        torch.cuda.synchronize()
        waits[(blocks,)](flag, out, n, prof.buffer("hangs", size=1 << 20), num_warps=WARPS)
        time.sleep(0.5)
        began = time.monotonic()
        found = prof.snapshot()
        took = time.monotonic() - began
        still = not torch.cuda.current_stream().query()
        with torch.cuda.stream(beside):  # before any check: the kernel must end
            flag.copy_(one, non_blocking=True)
        torch.cuda.synchronize()
    print(found, f"{took:.3f} s")
    assert still
    here = [each for each in found.warps if each.launch == "hangs"]
    assert len(here) == blocks * WARPS
    assert {(each.open, each.last) for each in here} == {("wait for the flag", "task")}
    assert {each.records for each in here} == {n}
    least, most = min(each.for_ns for each in here), max(each.for_ns for each in here)
    assert 0.3e9 < least <= most < 3e9
    assert torch.equal(out, plain)
    (hung,) = [each for each in prof.trace.launches if each.label == "hangs"]
    assert (hung.attempted, hung.unfinished) == ((n + 2) * blocks * WARPS, 0)
    assert hung.dropped < hung.attempted


def test_one_that_runs_is_seen_to_go_on() -> None:
    run(10, None)
    counts = []
    with ikp.profile(overflow="stream", clock="globaltimer") as prof:
        out = torch.empty(BLOCKS * 128, device="cuda")
        buffer = prof.buffer("tasks", size=size_of(1024))
        tasks[(BLOCKS,)](out, 20_000, buffer, STEPS=5000, num_warps=WARPS)
        for _ in range(5):
            time.sleep(0.02)
            found = prof.snapshot()
            counts.append(sum(each.records for each in found.warps))
            (launch,) = found.trace.launches
            assert launch.kept <= launch.attempted
    print(counts, found)
    assert counts == sorted(set(counts))
    check_order(prof.trace, 20_000)


def test_warps_of_a_specialised_gluon_kernel_stream_too() -> None:
    from tests.gpu import gluon_kernels

    seen = []
    for overflow in ("stop", "stream"):
        out = torch.zeros(8 * 1024, dtype=torch.int32, device="cuda")
        with ikp.profile(overflow=overflow) as prof:
            gluon_kernels.specialised[(8,)](out, 100, prof.buffer("g", size=2 << 20), num_warps=4)
        (launch,) = prof.trace.launches
        assert (launch.overflow, launch.dropped, launch.unfinished) == (overflow, 0, 0)
        events, slots = prof.trace.events, prof.trace.slots
        names = [prof.trace.regions[region].name for region in events.region]
        keys = zip(slots.block[events.slot], slots.warp[events.slot], names, events.payload,
                   strict=True)  # fmt: skip
        seen.append((sorted(map(tuple, keys)), out))
    assert seen[0][0] == seen[1][0]
    assert torch.equal(seen[0][1], seen[1][1])


def test_what_a_kernel_that_fails_had_recorded_is_in_the_trace(tmp_path: Path) -> None:
    from tests.gpu import stream_program as program

    path = tmp_path / "x.pftrace"
    command = [sys.executable, "-m", "tests.gpu.stream_program", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    print(done.stderr)
    assert done.returncode != 0 and "illegal" in done.stderr
    trace = ikp.load(path)
    names = Counter(trace.regions[region].name for region in trace.events.region)
    assert names["task"] == program.TASKS * program.BLOCKS
    # A warp does not wait for its stores: when the GPU has reported this one, it may have finished.
    assert (names["bad store (open)"] + names["bad store"], names["wait (open)"]) == (
        1,
        program.BLOCKS - 1,
    )
    (block,) = {*trace.slots.block[trace.slots.finished].tolist()} or {program.FAILS.value}
    assert block == program.FAILS.value, "the one that may have finished"
    assert "failed" in trace.provenance["fault"] and "goes on after" in trace.provenance["fault"]


def test_a_session_of_many_streams_gives_their_memory_back() -> None:
    with ikp.profile() as prof:
        run(10, prof.buffer("first"))
    before = most = held()
    with ikp.profile(overflow="stream") as prof:
        for i in range(300):
            run(100, prof.buffer(f"launch {i}", size=size_of(64)), steps=100)
            most = max(most, held())
    print(f"{(most - before) >> 20} MiB")
    assert most - before < 1 << 30
    launches = prof.trace.launches
    assert [each.label for each in launches] == [f"launch {i}" for i in range(300)]
    assert {each.attempted for each in launches} == {100 * BLOCKS * WARPS}
    assert {each.kept >= 64 * BLOCKS * WARPS for each in launches} == {True}


def test_overhead_is_deducted_of_streams_too() -> None:
    with ikp.profile(overflow="stream", deduct_overhead=True) as prof:
        run(200, prof.buffer("tasks", size=size_of(256)))
    (launch,) = prof.trace.launches
    assert launch.kept == 200 * BLOCKS * WARPS
    assert DEDUCTED in prof.trace.provenance
