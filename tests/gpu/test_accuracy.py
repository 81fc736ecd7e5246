"""64-bit clocks, and recording's own cost, on a GPU."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from ikp.edit.deduct import DEDUCTED  # noqa: E402
from tests.gpu import kernels  # noqa: E402

pytestmark = pytest.mark.gpu

CLOCKS = ["cycles", "globaltimer", "cycles64", "globaltimer64"]
WIDE = CLOCKS[2:]
LONG_MS = 5000
LONG_NS = LONG_MS * 1_000_000
"""Longer than 32 bits count, in ns as in cycles."""


def spun(ms: int, clock: str, blocks: int = 8) -> ikp.Trace:
    out = torch.empty(blocks, dtype=torch.int64, device="cuda")
    with ikp.profile(clock=clock) as prof:
        kernels.spin_ms[(blocks,)](out, ms, prof.buffer("spin"), num_warps=1)
    return prof.trace


@pytest.mark.parametrize("clock", WIDE)
def test_a_range_longer_than_32_bits_is_as_long_as_it_was(clock: str) -> None:
    trace = spun(LONG_MS, clock)
    duration = trace.events.end_ns - trace.events.start_ns
    assert np.abs(duration - LONG_NS).max() < 0.01 * LONG_NS
    assert trace.events.ticks.min() > 1 << 32
    assert not any("longer than" in note for note in trace.launches[0].notes)


def test_with_32_bits_it_is_shown_short_and_told() -> None:
    with pytest.warns(ikp.IkpWarning, match="clock='cycles64'"):
        trace = spun(LONG_MS, "cycles")
    assert (trace.events.end_ns - trace.events.start_ns).max() < LONG_NS - 10**9


@pytest.mark.parametrize("overflow", ["stop", "wrap"])
@pytest.mark.parametrize("clock", WIDE)
def test_every_record_comes_back(clock: str, overflow: str) -> None:
    out, n = torch.empty(300 * 1024, device="cuda"), 17
    with ikp.profile(clock=clock, overflow=overflow) as prof:
        kernels.counted[(300,)](out, n, prof.buffer("k"), PAYLOAD=True, num_warps=4)
    trace = prof.trace
    (launch,) = trace.launches
    assert launch.attempted == launch.kept == 300 * 4 * (n + 2)
    assert (launch.clock.bits, launch.notes) == (64, ())
    assert sorted(trace.payload[trace.events.slot == 7].tolist()) == sorted([*range(n), 1.5, 1.0])


@pytest.mark.parametrize("clock", CLOCKS)
def test_what_recording_costs_is_plausible(clock: str) -> None:
    found = ikp.calibrate(clock=clock)
    assert found.device == spun(2, clock).launches[0].device
    most = 300.0
    assert 0 <= found.empty_range.ticks < most
    assert 0 < found.range_alone.ticks < most
    for in_work in (found.range_inside, found.nested_inside, found.instant_inside):
        assert abs(in_work.ticks) < found.range_alone.ticks


@pytest.mark.parametrize("roots", [1, 8])
@pytest.mark.parametrize("inner", [1, 4])
def test_with_deduction_times_are_no_further_from_those_of_the_kernel_itself(
    roots: int, inner: int
) -> None:
    from benchmarks.recording_cost import step_cycles

    overhead = ikp.calibrate()
    without = step_cycles(0, roots, overhead)  # its own two clock reads deducted
    recorded, bare = (step_cycles(inner, roots, each) for each in (None, overhead))
    assert abs(bare - without) <= abs(recorded - without) + 2
    assert bare > 0.9 * without


def test_deduction_keeps_the_time_of_work() -> None:
    ns = 100_000
    out = torch.empty(8, dtype=torch.int64, device="cuda")
    with ikp.profile(deduct_overhead=True) as prof:
        kernels.spin[(8,)](out, ns, prof.buffer("spin"), num_warps=1)
    assert DEDUCTED in prof.trace.provenance
    duration = prof.trace.events.end_ns - prof.trace.events.start_ns
    assert np.abs(duration - ns).max() < 2000
