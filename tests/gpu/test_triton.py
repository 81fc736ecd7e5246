"""Real launches on a GPU: what comes back is exactly what the kernel did."""

import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from tests.gpu import kernels  # noqa: E402

pytestmark = pytest.mark.gpu


def by_slot(trace: ikp.Trace):
    """Yield (slot, frame of its events in order of recording)."""
    frame = trace.to_pandas()
    frame["slot"] = trace.events.slot
    yield from frame.groupby("slot")


def steps(trace: ikp.Trace) -> dict[int, list[float]]:
    """Return the payloads of "step" per slot."""
    return {
        int(slot): frame.loc[frame.region == "step", "payload"].tolist()
        for slot, frame in by_slot(trace)
    }


@pytest.mark.parametrize("warps", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("grid", [(1,), (300,), (5, 7), (3, 4, 5)])
def test_every_record_of_every_warp_comes_back(grid: tuple[int, ...], warps: int) -> None:
    blocks, n = int(np.prod(grid)), 17
    out = torch.empty(blocks * 1024, device="cuda")
    with ikp.profile() as prof:
        kernels.counted[grid](out, n, prof.buffer("k"), PAYLOAD=True, num_warps=warps)
    trace = prof.trace
    (launch,) = trace.launches
    assert launch.grid == (*grid, 1, 1)[:3]
    assert launch.block == (32 * warps, 1, 1)
    assert len(trace.slots) == blocks * warps
    assert trace.slots.finished.all()
    assert launch.attempted == launch.kept == blocks * warps * (n + 2)
    assert launch.dropped == 0
    assert launch.notes == ()
    assert sorted(zip(trace.slots.block, trace.slots.warp, strict=True)) == [
        (b, w) for b in range(blocks) for w in range(warps)
    ]
    assert all(payloads == list(range(n)) for payloads in steps(trace).values())
    for _, frame in by_slot(trace):
        assert frame.region.tolist() == ["step"] * n + ["done", "outer"]
        assert frame.end_ns.is_monotonic_increasing
        assert (frame.start_ns <= frame.end_ns).all()
        outer = frame.iloc[-1]
        assert outer.payload == outer.block
        assert frame.iloc[-2].payload == 1.5
        assert (frame.start_ns >= outer.start_ns).all()


def test_times_are_those_of_the_global_timer() -> None:
    ns, blocks = 200_000, 264
    out = torch.empty(blocks, dtype=torch.int64, device="cuda")
    with ikp.profile() as prof:
        kernels.spin[(blocks,)](out, ns, prof.buffer("spin"), num_warps=1)
        kernels.spin[(blocks,)](out, ns, prof.buffer("spin"), num_warps=1)
    trace = prof.trace
    duration = trace.events.end_ns - trace.events.start_ns
    assert np.abs(duration - ns).max() < 0.01 * ns
    fit = trace.launches[0].clock
    assert fit.rate == "fitted"
    assert 0.4 < fit.ns_per_tick < 1.5
    assert fit.residual_max_ns < 2000
    first, second = (trace.slots.launch == i for i in (0, 1))
    assert trace.slots.end_ns[first].max() <= trace.slots.start_ns[second].min() + 100


@pytest.mark.parametrize("clock", ["cycles", "globaltimer"])
def test_both_clocks_agree_on_a_known_duration(clock: str) -> None:
    out = torch.empty(8, dtype=torch.int64, device="cuda")
    with ikp.profile(clock=clock) as prof:
        kernels.spin[(8,)](out, 100_000, prof.buffer("spin"), num_warps=1)
    duration = prof.trace.events.end_ns - prof.trace.events.start_ns
    assert len(duration) == 8
    assert np.abs(duration - 100_000).max() < 2000


def test_a_full_slot_stops_and_counts_exactly() -> None:
    out = torch.empty(64 * 1024, device="cuda")
    with pytest.warns(ikp.IkpWarning, match="records dropped"), ikp.profile() as prof:
        kernels.counted[(64,)](
            out, 100, prof.buffer("k", size=128 + 256 * (64 + 10 * 16)), PAYLOAD=True, num_warps=4
        )
    (launch,) = prof.trace.launches
    assert launch.capacity == 10
    assert launch.attempted == 256 * 102
    assert launch.kept == 256 * 10
    assert all(payloads == list(range(10)) for payloads in steps(prof.trace).values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ikp.profile() as prof:
            kernels.counted[(64,)](
                out, 100, prof.buffer("k", size=launch.needed_bytes), PAYLOAD=True, num_warps=4
            )
    assert prof.trace.dropped == 0


def test_a_ring_keeps_the_latest() -> None:
    out = torch.empty(64 * 1024, device="cuda")
    size = 128 + 256 * (64 + 16 * 16)
    with pytest.warns(ikp.IkpWarning, match="oldest"), ikp.profile(overflow="wrap") as prof:
        kernels.counted[(64,)](out, 100, prof.buffer("k", size=size), PAYLOAD=True, num_warps=4)
    (launch,) = prof.trace.launches
    assert launch.capacity == 16
    assert (launch.attempted, launch.kept) == (256 * 102, 256 * 16)
    for _, frame in by_slot(prof.trace):
        assert frame.region.tolist() == ["step"] * 14 + ["done", "outer"]
        assert frame.payload.tolist()[:14] == list(range(86, 100))


def test_capture_grows_until_nothing_is_dropped() -> None:
    out = torch.empty(64 * 1024, device="cuda")
    trace = ikp.capture(
        lambda prof: kernels.counted[(64,)](out, 500, prof.buffer("k"), PAYLOAD=True, num_warps=4),
        buffer_size=4096,
    )
    assert trace.dropped == 0
    assert len(trace.events) == 256 * 502


def test_a_kernel_that_returns_early_keeps_its_records() -> None:
    out = torch.empty(100, dtype=torch.int32, device="cuda")
    with ikp.profile() as prof:
        kernels.early_exit[(100,)](out, 5, prof.buffer("k"), num_warps=2)
    trace = prof.trace
    assert trace.slots.finished.all()
    assert trace.launches[0].notes == ()
    assert len(trace.events) == 100 * 5 + 100 * 6
    assert (trace.slots.kept == np.where(trace.slots.block % 2 == 1, 5, 6)).all()


def test_functional_verbs_runtime_ids_and_asynchronous_ranges() -> None:
    n = 7
    out = torch.empty(33 * 256, device="cuda")
    with ikp.profile() as prof:
        kernels.functional[(33,)](
            out, n, prof.buffer("f", regions={0: "zero", 1: "one"}), num_warps=4
        )
    for _, frame in by_slot(prof.trace):
        names = frame.region.tolist()
        assert names.count("helper") == n
        assert names.count("flight") == n + 1
        assert names.count("zero") == 3
        assert names.count("one") == names.count("region 2") == 2
        flights = frame[frame.region == "flight"]
        assert flights.payload.tolist() == list(range(n + 1))
        assert names[-1] == "all"


def test_results_and_machine_code_are_those_of_the_plain_kernel_when_off() -> None:
    out, same = torch.empty(64 * 1024, device="cuda"), torch.empty(64 * 1024, device="cuda")
    kernels.counted[(64,)](out, 9, None, PAYLOAD=True)
    with ikp.profile() as prof:
        kernels.counted[(64,)](same, 9, prof.buffer("k"), PAYLOAD=True)
        kernels.counted[(64,)](same, 9, prof.buffer("off", enabled=False), PAYLOAD=True)
    assert torch.equal(out, same)
    assert [launch.label for launch in prof.trace.launches] == ["k"]


def test_many_launches_keep_their_labels_and_order() -> None:
    out = torch.empty(64 * 1024, device="cuda")
    with ikp.profile(buffer_size=1 << 20) as prof:
        for i in range(40):
            kernels.counted[(64,)](out, i, prof.buffer(f"k{i}"), PAYLOAD=False)
    launches = prof.trace.launches
    assert [launch.label for launch in launches] == [f"k{i}" for i in range(40)]
    assert [launch.kept for launch in launches] == [256 * (i + 2) for i in range(40)]


def test_streams_and_graphs() -> None:
    out = torch.empty(64 * 1024, device="cuda")
    side = torch.cuda.Stream()
    with ikp.profile() as prof:
        with torch.cuda.stream(side):
            kernels.counted[(64,)](out, 3, prof.buffer("side"), PAYLOAD=True)
        buffer = prof.buffer("graph")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernels.counted[(64,)](out, 4, buffer, PAYLOAD=True)
            with pytest.raises(ikp.BufferError, match="captured"):
                prof.buffer("too late")
        for _ in range(3):
            graph.replay()
    assert [(each.label, each.kept, each.relaunches) for each in prof.trace.launches] == [
        ("side", 256 * 5, 0),
        *(3 * [("graph", 256 * 6, 0)]),
    ]


@pytest.mark.parametrize("recorded", [True, False])
def test_threads_that_compile_and_launch_from_cold(recorded: bool) -> None:
    """Each thread takes buffers of one session, on a stream of its own."""
    threads, each = 8, 20
    together = threading.Barrier(threads)

    def work(number: int, prof: ikp.profile) -> None:
        out = torch.empty(64 * 1024, device="cuda")
        together.wait()
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(each):
                buffer = prof.buffer(f"{number}.{step}") if recorded else None
                kernels.counted[(64,)](
                    out, step, buffer, PAYLOAD=True, num_warps=1 + number % 2 * 3
                )
        torch.cuda.synchronize()

    with ikp.profile() as prof, ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, number, prof) for number in range(threads)]:
            done.result()
    found = {launch.label: launch.kept for launch in prof.trace.launches}
    assert found == {
        f"{n}.{s}": 64 * (1 + n % 2 * 3) * (s + 2)
        for n in range(threads * recorded)
        for s in range(each)
    }


def test_each_thread_records_into_its_own_session() -> None:
    from tests.kernels import unedited

    together = threading.Barrier(4)
    marked = ikp.instrument(unedited.several, detail="kernel")

    def work(launches: int) -> int:
        x, out = (torch.zeros(1024, device="cuda") for _ in range(2))
        together.wait()
        with ikp.profile() as prof:
            for _ in range(launches):
                marked[(4,)](x, out, 3, BLOCK=64)
        return len(prof.trace.launches)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(1, 5))) == [1, 2, 3, 4]


def test_a_late_launch_is_told_and_a_buffer_emptied_goes_on() -> None:
    out = torch.empty(64 * 1024, device="cuda")
    with ikp.profile() as prof:
        buffer = prof.buffer("k", warps=[0])
        kernels.counted[(64,)](out, 9, buffer, PAYLOAD=True)
        prof.reset()
        kernels.counted[(64,)](out, 4, buffer, PAYLOAD=True)
    assert [(each.label, each.kept, each.relaunches) for each in prof.trace.launches] == [
        ("k", 64 * 6, 0)
    ]
    with pytest.warns(ikp.IkpWarning, match="buffer 'k' after its session ended"):
        kernels.counted[(64,)](out, 4, buffer, PAYLOAD=True)
    del buffer, prof
    torch.cuda.synchronize()


def test_autotuning_records_the_launch_and_not_the_trials() -> None:
    n = 10_000
    out = torch.empty(n, dtype=torch.int32, device="cuda")
    with ikp.profile() as prof:
        kernels.tuned[lambda meta: (-(-n // meta["BLOCK"]),)](out, n, prof.buffer("tuned"))
    (launch,) = prof.trace.launches
    assert (launch.relaunches, launch.notes) == (0, ())
    best = kernels.tuned.best_config
    assert launch.warps_per_block == best.num_warps
    assert launch.kept == launch.grid[0] * best.num_warps
    assert set(prof.trace.payload) == {best.kwargs["BLOCK"]}


def test_a_buffer_too_small_for_the_grid_says_what_it_takes() -> None:
    out = torch.empty(300 * 1024, device="cuda")
    with pytest.warns(ikp.IkpWarning, match="too small for 1200 warps"), ikp.profile() as prof:
        kernels.counted[(300,)](out, 3, prof.buffer("k", size=4096), PAYLOAD=True)
    assert prof.trace.launches[0].kept == 0


def test_clusters() -> None:
    out = torch.empty(64 * 1024, device="cuda")
    with ikp.profile() as prof:
        kernels.counted[(64,)](out, 3, prof.buffer("k"), PAYLOAD=True, num_ctas=2, num_warps=4)
    (launch,) = prof.trace.launches
    assert launch.grid[0] == 128
    assert launch.kept == 128 * 4 * 5


def test_a_cpu_buffer_is_refused_before_launch() -> None:
    out = torch.empty(1024, device="cuda")
    with (
        pytest.warns(ikp.IkpWarning, match="nothing was recorded"),
        ikp.profile(device="cpu") as prof,
        pytest.raises(Exception, match="CPU memory"),
    ):
        kernels.counted[(1,)](out, 1, prof.buffer("k"), PAYLOAD=True)


def test_names_survive_the_compile_cache(tmp_path: Path) -> None:
    script = (
        "import torch, ikp; from tests.gpu import kernels\n"
        "from ikp.verbs import dsl as names\n"
        "with ikp.profile() as prof:\n"
        "    kernels.counted[(4,)](torch.empty(4096, device='cuda'), 2, prof.buffer('k'), True)\n"
        "print(len(names.known()), sorted({r.name for r in prof.trace.regions}))\n"
    )
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == "3 ['done', 'outer', 'step']\n"
    assert runs[1] == "0 ['done', 'outer', 'step']\n"  # nothing was traced: the names came from PTX


def test_the_trace_is_written(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    path = tmp_path / "k.pftrace"
    out = torch.empty(64 * 1024, device="cuda")
    with ikp.profile(path) as prof:
        kernels.counted[(64,)](out, 9, prof.buffer("k"), PAYLOAD=True)
    again = ikp.load(path)
    assert again.launches == prof.trace.launches
    assert (again.events.start_ns == prof.trace.events.start_ns).all()


@pytest.mark.parametrize(
    "options",
    [{}, {"overflow": "wrap"}, {"clock": "cycles64"}, {"schedule": False}],
    ids=str,
)
def test_functions_that_a_kernel_calls_record_too(options: dict[str, Any]) -> None:
    from tests.kernels import called

    blocks, warps, n = 40, 4, 9
    plain, out = (torch.zeros(blocks * 256, dtype=torch.int32, device="cuda") for _ in range(2))
    called.calling[(blocks,)](plain, n, None, num_warps=warps)
    with ikp.profile(**options) as prof:
        called.calling[(blocks,)](out, n, prof.buffer("k"), num_warps=warps)
    assert torch.equal(out, plain)
    trace = prof.trace
    expected = called.records(n)
    (launch,) = trace.launches
    assert launch.attempted == launch.kept == blocks * warps * len(expected)
    assert launch.notes == ()
    for _, frame in by_slot(trace):
        payloads = [None if np.isnan(value) else value for value in frame.payload]
        assert list(zip(frame.region, payloads, strict=True)) == expected
