"""Totals on a GPU: every warp counts what it did, and its sums agree with a timeline's."""

from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from tests.gpu import kernels  # noqa: E402

pytestmark = pytest.mark.gpu


def counts(trace: ikp.Trace) -> Counter:
    """Return how often each region occurred, by block, warp, region and kind."""
    frame = trace.to_pandas()
    rows = zip(frame.block, frame.warp, frame.region, frame.kind, strict=True)
    return Counter(dict(zip(rows, frame["count"].tolist(), strict=True)))


@pytest.mark.parametrize("warps", [1, 4, 32])
@pytest.mark.parametrize("grid", [(1,), (300,), (3, 4, 5)])
def test_every_warp_of_every_block_counts(grid: tuple[int, ...], warps: int) -> None:
    blocks, n = int(np.prod(grid)), 17
    out = torch.empty(blocks * 1024, device="cuda")
    with ikp.profile(mode="totals") as prof:
        kernels.counted[grid](out, n, prof.buffer("k"), PAYLOAD=True, num_warps=warps)
    trace = prof.trace
    (launch,) = trace.launches
    assert (launch.mode, launch.dropped, launch.notes) == ("totals", 0, ())
    assert trace.slots.finished.all() and not len(trace.events)
    assert counts(trace) == {
        (block, warp, *what): count
        for block in range(blocks)
        for warp in range(warps)
        for what, count in {
            ("step", "range"): n,
            ("outer", "range"): 1,
            ("done", "instant"): 1,
        }.items()
    }
    frame = trace.to_pandas()
    ticks = frame.pivot_table(index=["block", "warp"], columns="region", values="ticks")
    assert (ticks.step > 0).all() and (ticks.step < ticks.outer).all()
    share = frame[frame.region == "outer"].share
    assert ((share > 0) & (share <= 1.001)).all()


def test_sums_agree_with_a_timeline() -> None:
    blocks, n, mean = 132, 2000, {}
    out = torch.empty(blocks * 1024, device="cuda")
    for mode in ("totals", "timeline", "totals", "timeline"):  # the first of each compiles
        with ikp.profile(mode=mode, buffer_size=256 << 20) as prof:
            kernels.counted[(blocks,)](out, n, prof.buffer("k"), PAYLOAD=False, num_warps=4)
        assert prof.trace.dropped == 0
        rows = {row.region: row for row in prof.trace.stats()}
        assert rows["step"].count == blocks * 4 * n
        mean[mode] = rows["step"].mean_ns
        assert rows["step"].total_ns < rows["outer"].total_ns
        assert (rows["step"].p50_ns is None) is (mode == "totals")
    assert mean["totals"] == pytest.approx(mean["timeline"], rel=0.2)


def test_blocks_that_return_early_have_theirs() -> None:
    out = torch.zeros(64, dtype=torch.int32, device="cuda")
    with ikp.profile(mode="totals") as prof:
        kernels.early_exit[(64,)](out, 5, prof.buffer("k"), num_warps=2)
    wanted = Counter()
    for block in range(64):
        for warp in range(2):
            wanted[block, warp, "step", "range"] = 5
            if block % 2 == 0:
                wanted[block, warp, "rest", "range"] = 1
    assert counts(prof.trace) == wanted
    assert prof.trace.slots.finished.all()


def test_chosen_warps_and_blocks_alone_have_totals() -> None:
    out = torch.empty(10 * 1024, device="cuda")
    with ikp.profile(mode="totals") as prof:
        buffer = prof.buffer("k", warps=[1, 3], blocks=range(2, 10, 4))
        kernels.counted[(10,)](out, 3, buffer, PAYLOAD=False, num_warps=4)
    found = counts(prof.trace)
    assert {key[:2] for key in found} == {(b, w) for b in (2, 6) for w in (1, 3)}


def test_a_slot_that_is_too_small_drops_and_tells_the_size_that_does() -> None:
    out = torch.empty(8 * 1024, device="cuda")

    def work(prof: ikp.profile) -> None:
        kernels.counted[(8,)](out, 3, prof.buffer("k"), PAYLOAD=False, num_warps=4)

    size = 128 + 32 * (64 + 16)
    with (
        pytest.warns(ikp.IkpWarning, match="totals dropped"),
        ikp.profile(mode="totals", buffer_size=size) as prof,
    ):
        work(prof)
    assert prof.trace.dropped == 2 * 32
    assert ikp.capture(work, mode="totals", buffer_size=size).dropped == 0


def test_warps_of_every_partition_have_their_own() -> None:
    from tests.gpu import gluon_kernels

    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("warp specialisation needs compute capability 9.0")
    blocks, n = 50, 9
    out = torch.zeros(blocks * 1024, dtype=torch.int32, device="cuda")
    with ikp.profile(mode="totals") as prof:
        gluon_kernels.specialised[(blocks,)](out, n, prof.buffer("ws"), num_warps=4)
    wanted = Counter(
        {
            (block, warp, name, "range"): n + more
            for block in range(blocks)
            for warp, name, more in (
                *((w, "default", 0) for w in range(4)),
                *((w, "two", 2) for w in (4, 5)),
                (6, "one", 1),
            )
        }
    )
    assert counts(prof.trace) == wanted
    assert {row.group for row in prof.trace.stats("role")} == {"default", "one", "two"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_roles_of_a_cute_kernel() -> None:
    pytest.importorskip("cutlass")
    from cutlass.cute.runtime import from_dlpack

    from tests.backends.cute import kernels as cute_kernels

    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("setmaxregister as Hopper has it")
    n, steps = 6, 2
    out = torch.zeros(1 << 14, device="cuda")
    with ikp.profile(mode="totals") as prof:
        cute_kernels.Roles(steps)(from_dlpack(out), n, prof.buffer("roles"))
    assert prof.trace.launches[0].notes == ()
    wanted = Counter()
    for block in range(16):
        for warp in range(8):
            if warp < 4:
                wanted[block, warp, "produce", "range"] = n
            else:
                wanted[block, warp, "consume", "range"] = n
                wanted[block, warp, "step", "range"] = n * steps
    assert counts(prof.trace) == wanted
