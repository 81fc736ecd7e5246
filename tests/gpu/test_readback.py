"""A session of many launches: what is read back while others run, and how much memory it takes."""

import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from ikp.core import abi  # noqa: E402
from ikp.session.harvest import BEGIN_BYTES, UNREAD_BYTES  # noqa: E402
from ikp.session.memory import DEFAULT_BYTES  # noqa: E402
from tests.gpu import kernels  # noqa: E402
from tests.gpu.held import held  # noqa: E402
from tests.gpu.test_triton import steps  # noqa: E402

pytestmark = pytest.mark.gpu

LAUNCHES = 400
N = 5


def launch(out: torch.Tensor, buffer: object, n: int = N) -> None:
    kernels.counted[(3,)](out, n, buffer, PAYLOAD=True, num_warps=2)


def check(trace: ikp.Trace, launches: int = LAUNCHES) -> None:
    assert len(trace.launches) == launches
    assert {each.kept for each in trace.launches} == {6 * (N + 2)}
    assert {each.notes for each in trace.launches} == {()}
    assert len(trace.slots) == 6 * launches
    assert all(payloads == list(range(N)) for payloads in steps(trace).values())


@pytest.fixture
def out() -> torch.Tensor:
    out = torch.empty(3 * 1024, device="cuda")
    launch(out, None)
    with ikp.profile() as prof:
        launch(out, prof.buffer("warm up"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return out


def test_a_long_session_takes_a_bounded_part_of_the_memory(out: torch.Tensor) -> None:
    before = most = held()
    allocated = torch.cuda.memory_allocated()
    with ikp.profile() as prof:
        for i in range(LAUNCHES):
            launch(out, prof.buffer(f"launch {i}"))
            if i % 10 == 9:  # a program that is as fast as its kernels
                torch.cuda.current_stream().synchronize()
                most = max(most, held())
        assert torch.cuda.memory_allocated() == allocated, "it is not torch's"
    peak = most - before
    print(f"peak {peak / 2**30:.2f} GiB of {LAUNCHES * DEFAULT_BYTES['timeline'] / 2**30:.1f}")
    # A launch waits from a quarter of a GiB above the bound on; a chunk has room for more.
    assert peak < UNREAD_BYTES + 3 * BEGIN_BYTES
    check(prof.trace)
    assert [each.label for each in prof.trace.launches] == [f"launch {i}" for i in range(LAUNCHES)]


def test_memory_is_given_back_and_used_again_zero(out: torch.Tensor) -> None:
    before = held()
    with ikp.profile(buffer_size=1 << 20) as prof:
        for i in range(2000):
            buffer = prof.buffer(f"launch {i}")
            if i % 50 == 0:
                assert not buffer.data.any(), "an earlier launch's records"
            launch(out, buffer)
            del buffer
            if i % 10 == 9:
                torch.cuda.synchronize()
        assert prof.held < 2 << 30
    check(prof.trace, 2000)
    del prof
    deadline = time.monotonic() + 10
    while held() > before + (64 << 20):
        assert time.monotonic() < deadline, "the session's memory is still held"
        time.sleep(0.05)


def test_a_launch_takes_little_of_the_thread_that_makes_it(out: torch.Tensor) -> None:
    count = 2000

    def thread_us(prof: ikp.profile | None) -> float:
        began = time.thread_time()
        for i in range(count):
            launch(out, prof and prof.buffer("k"))
            if i % 10 == 9:
                torch.cuda.synchronize()
        return 1e6 * (time.thread_time() - began) / count

    plain = min(thread_us(None) for _ in range(3))
    with ikp.profile() as prof:
        thread_us(prof)
        recorded = thread_us(prof)
    print(f"{recorded - plain:.0f} us a launch more than {plain:.0f}")
    assert recorded - plain < 300
    check(prof.trace, 2 * count)


def test_taking_buffers_waits_for_no_kernel(out: torch.Tensor) -> None:
    cycles = 4_000_000_000  # two seconds or more
    with ikp.profile() as prof:
        launch(out, prof.buffer("k"))
        torch.cuda.synchronize()
        torch.cuda._sleep(cycles)
        began = time.perf_counter()
        for _ in range(40):
            launch(out, prof.buffer("k"))
        queued = time.perf_counter() - began
        torch.cuda.synchronize()
        whole = time.perf_counter() - began
    print(f"queued in {queued:.3f} s of {whole:.3f}")
    assert queued < 0.5 * whole
    check(prof.trace, 41)


def test_launches_on_several_streams_come_back(out: torch.Tensor) -> None:
    streams = [torch.cuda.Stream() for _ in range(3)]
    outs = [torch.empty_like(out) for _ in streams]
    with ikp.profile() as prof:
        for i in range(120):
            with torch.cuda.stream(streams[i % 3]):
                launch(outs[i % 3], prof.buffer("k"))
            if i % 20 == 19:
                torch.cuda.synchronize()
    check(prof.trace, 120)


def test_buffers_that_are_held_are_read_last(out: torch.Tensor) -> None:
    with ikp.profile() as prof:
        mine = [prof.buffer("k") for _ in range(20)]
        for buffer in mine:
            launch(out, buffer, 1)
        for _ in range(60):
            launch(out, prof.buffer("k"))
            torch.cuda.synchronize()
        prof.reset()
        for buffer in mine:
            launch(out, buffer)
        for _ in range(60):
            launch(out, prof.buffer("k"))
    check(prof.trace, 80)


def test_a_graph_s_buffer_stays(out: torch.Tensor) -> None:
    graph = torch.cuda.CUDAGraph()
    with ikp.profile() as prof:
        buffer = prof.buffer("k")
        with torch.cuda.graph(graph):
            launch(out, buffer)
        del buffer
        graph.replay()
        for _ in range(60):
            launch(out, prof.buffer("k"))
            torch.cuda.synchronize()
    check(prof.trace, 61)
    graph.replay()  # into memory that outlives the session
    torch.cuda.synchronize()


@pytest.mark.parametrize("blocks", [1, 64, 1024])
def test_uneven_warps_and_full_slots_come_back(blocks: int) -> None:
    out = torch.empty(blocks * 1024, device="cuda")
    n, few = 300, abi.segment_bytes(8 * blocks, 100)
    with ikp.profile() as prof:
        kernels.counted[(blocks,)](out, n, prof.buffer("all", size=256 << 20), True, num_warps=8)
    with pytest.warns(ikp.IkpWarning, match="dropped"), ikp.profile() as full:
        kernels.counted[(blocks,)](out, n, full.buffer("k", size=few), True, num_warps=8)
    assert (prof.trace.slots.kept == n + 2).all()
    assert (full.trace.slots.kept == 100).all()
    assert all(payloads == list(range(n)) for payloads in steps(prof.trace).values())
    assert all(payloads == list(range(100)) for payloads in steps(full.trace).values())


def test_warps_that_have_not_finished_are_read_up_to_where_they_came(out: torch.Tensor) -> None:
    slots, state = 6, torch.tensor([1, 0, 0, 0], dtype=torch.uint8, device="cuda")  # running
    prof = ikp.profile().start()
    buffer = prof.buffer("k")
    launch(out, buffer)
    torch.cuda.synchronize()
    size = int(buffer.data[36:40].clone().view(torch.int32)[0])
    buffer.data[128:][: slots * size].view(slots, size)[:3, 40:44] = state
    with pytest.warns(ikp.IkpWarning, match="3 warps never reached finish"):
        prof.stop()
    assert prof.trace.slots.finished.sum() == 3
    assert (prof.trace.slots.kept == N + 2).all()
