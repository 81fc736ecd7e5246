"""CUDA graphs: every replay's records are kept, and results are as without ikp."""

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from tests.gpu import kernels  # noqa: E402
from tests.gpu.test_triton import steps  # noqa: E402

pytestmark = pytest.mark.gpu

BLOCKS, WARPS, NODES, REPLAYS = 6, 2, 50, 100
ROOM = {"grid": BLOCKS, "num_warps": WARPS}


def launch(out: torch.Tensor, buffer: object, n: int) -> None:
    kernels.counted[(BLOCKS,)](out, n, buffer, PAYLOAD=True, num_warps=WARPS)


@pytest.fixture
def out() -> torch.Tensor:
    out = torch.zeros(BLOCKS * 1024, device="cuda")
    with ikp.profile() as prof:
        launch(out, prof.buffer("warm up", **ROOM), 1)
    launch(out, None, 1)
    torch.cuda.synchronize()
    return out


def capture(
    prof: "ikp.profile | None", out: torch.Tensor, nodes: int = NODES, first: int = 1
) -> torch.cuda.CUDAGraph:
    """A graph whose node ``i`` makes ``first + i`` steps."""
    buffers = [prof and prof.buffer(f"node {i}", **ROOM) for i in range(nodes)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i, buffer in enumerate(buffers):
            launch(out, buffer, first + i)
            out.add_(1)
    return graph


def check(trace: ikp.Trace, replays: int, nodes: int = NODES, first: int = 1) -> None:
    """Each replay has each node once, whole, and replays and nodes are in order."""
    labels = [each.label for each in trace.launches]
    assert sorted(labels) == sorted(replays * [f"node {i}" for i in range(nodes)])
    assert {each.notes for each in trace.launches} == {()}
    assert trace.slots.finished.all() and len(trace.slots) == replays * nodes * BLOCKS * WARPS
    begins = np.full(len(labels), np.iinfo(np.int64).max)
    np.minimum.at(begins, trace.slots.launch, trace.slots.start_ns)
    in_time = [labels[i] for i in np.argsort(begins, kind="stable")]
    assert in_time == replays * [f"node {i}" for i in range(nodes)]
    for slot, payloads in steps(trace).items():
        node = labels[trace.slots.launch[slot]].split()[1]
        assert payloads == list(range(first + int(node)))


def test_every_replay_is_kept(out: torch.Tensor) -> None:
    plain = torch.zeros_like(out)
    without = capture(None, plain)
    with ikp.profile() as prof:
        graph = capture(prof, out)
        for _ in range(REPLAYS):
            graph.replay()
            without.replay()
    assert torch.equal(out, plain)
    check(prof.trace, REPLAYS)


def test_replays_are_kept_up_to_a_bound(out: torch.Tensor) -> None:
    said = "CUDA graph .*: 3 of 7 replays were kept: the bound is 3"
    prof = ikp.profile(replays=3).start()
    graph = capture(prof, out, 4)
    for _ in range(7):
        graph.replay()
    with pytest.warns(ikp.IkpWarning, match=said):
        prof.stop()
    check(prof.trace, 3, 4)


def test_a_later_session_keeps_the_replays_made_in_it(out: torch.Tensor) -> None:
    with ikp.profile() as first:
        graph = capture(first, out, 3)
        graph.replay()
    check(first.trace, 1, 3)
    for _ in range(5):  # in no session
        graph.replay()
    with ikp.profile() as second:
        for _ in range(2):
            graph.replay()
    check(second.trace, 2, 3)
    assert {each.name for each in second.trace.regions} == {"outer", "step", "done"}
    assert "cuda:0" in second.trace.provenance["devices"]
    assert [each.replay for each in second.trace.launches] == [
        f"CUDA graph {number}, replay {replay}, node {node}"
        for number in {each.replay.split()[2].strip(",") for each in second.trace.launches}
        for replay in range(2)
        for node in range(3)
    ]
    graph.replay()
    torch.cuda.synchronize()


def test_two_threads_replay_two_graphs(out: torch.Tensor) -> None:
    outs = [torch.zeros_like(out) for _ in range(2)]
    with ikp.profile() as prof:
        graphs = [capture(prof, each, 3, 5 * i) for i, each in enumerate(outs)]

        def replay(graph: torch.cuda.CUDAGraph) -> None:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    graph.replay()

        threads = [threading.Thread(target=replay, args=(each,)) for each in graphs]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(prof.trace.launches) == 2 * 3 * 20
    assert trace_is_whole(prof.trace)


def test_two_threads_replay_one_graph(out: torch.Tensor) -> None:
    with ikp.profile() as prof:
        graph = capture(prof, out, 3)

        def replay() -> None:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    graph.replay()

        threads = [threading.Thread(target=replay) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    check(prof.trace, 40, 3)


def trace_is_whole(trace: ikp.Trace) -> bool:
    return bool(trace.slots.finished.all()) and {each.notes for each in trace.launches} == {()}


def test_large_launches_with_uneven_warps_are_whole() -> None:
    blocks = 700
    out = torch.zeros(blocks * 1024, device="cuda")
    with ikp.profile() as prof:
        buffers = [prof.buffer("many", grid=blocks, num_warps=8), prof.buffer("few", size=1 << 20)]
        graph = torch.cuda.CUDAGraph()
        kernels.counted[(blocks,)](out, 3, None, True, num_warps=8)
        with torch.cuda.graph(graph):
            kernels.counted[(blocks,)](out, 100, buffers[0], True, num_warps=8)
            kernels.counted[(5,)](out, 7, buffers[1], True, num_warps=4)
        for _ in range(4):
            graph.replay()
    assert [each.label for each in prof.trace.launches] == 4 * ["many", "few"]
    assert [each.kept for each in prof.trace.launches] == 4 * [blocks * 8 * 102, 20 * 9]
    assert trace_is_whole(prof.trace)
    assert {len(each) for each in steps(prof.trace).values()} == {100, 7}


def test_full_slots_and_the_memory_for_replays(out: torch.Tensor) -> None:
    """Some 12 MB a replay: the log of 512 MiB holds some forty, and says so."""
    blocks = 1024
    out = torch.zeros(blocks * 1024, device="cuda")
    said = "replays were kept: the memory for replays is full"
    prof = ikp.profile().start()
    buffer = prof.buffer("k", grid=blocks, num_warps=4)
    graph = torch.cuda.CUDAGraph()
    kernels.counted[(blocks,)](out, 3, None, True, num_warps=4)
    with torch.cuda.graph(graph):
        kernels.counted[(blocks,)](out, 200, buffer, True, num_warps=4)
    for _ in range(60):
        graph.replay()
    with pytest.warns(ikp.IkpWarning, match=said):
        prof.stop()
    assert 30 <= len(prof.trace.launches) < 50
    assert trace_is_whole(prof.trace)


@pytest.mark.parametrize(
    ("option", "value"), [("overflow", "wrap"), ("clock", "cycles64"), ("mode", "totals")]
)
def test_other_layouts_of_records(option: str, value: str) -> None:
    out, traces = torch.zeros(BLOCKS * 1024, device="cuda"), []
    for captured in (False, True):
        with ikp.profile(**{option: value}) as prof:
            buffer = prof.buffer("k", size=1 << 19)
            if captured:
                graph = torch.cuda.CUDAGraph()
                launch(out, None, 9)  # compiled before the capture
                with torch.cuda.graph(graph):
                    launch(out, buffer, 600)
                graph.replay()
                graph.replay()
            else:
                launch(out, buffer, 600)
        traces.append(prof.trace)
    one, two = traces
    assert len(one.launches) == 1 and len(two.launches) == 2
    assert {each.kept for each in two.launches} == {one.launches[0].kept}
    assert {each.attempted for each in two.launches} == {one.launches[0].attempted}
    assert len(two.events) == 2 * len(one.events) and len(two.totals) == 2 * len(one.totals)
