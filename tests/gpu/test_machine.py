"""Records in finished machine code, on a GPU: results bit for bit, and all ranges."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import ikp  # noqa: E402
from ikp.machine.chips import CHIPS, UNTESTED  # noqa: E402
from tests.kernels import unedited  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*were never run.*")]

SIZES = {"BM": 128, "BN": 128, "BK": 64}
M, N, K, WARPS, STAGES = 512, 384, 640, 8, 3
TILES, STEPS = 12, 10


@pytest.fixture(autouse=True)
def known_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "sm_{}{}".format(*torch.cuda.get_device_capability())
    if name not in {chip.name for chip in CHIPS}:
        pytest.skip(f"records in machine code are not known for {name}")
    monkeypatch.setenv(UNTESTED, "1")


def product(kernel):
    """Launch a matmul on always equal operands; return what it wrote."""
    torch.manual_seed(0)
    a = torch.randn((M, K), device="cuda", dtype=torch.float16)
    b = torch.randn((K, N), device="cuda", dtype=torch.float16)
    c = torch.zeros((M, N), device="cuda", dtype=torch.float16)
    kernel[(TILES,)](a, b, c, M, N, K, **SIZES, num_warps=WARPS, num_stages=STAGES)
    return c


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
@pytest.mark.parametrize("detail", ["kernel", "loops", "waits", "ops"])
def test_results_are_equal_and_all_is_kept(detail: str) -> None:
    plain = product(unedited.matmul)
    marked = ikp.instrument(unedited.matmul, detail=detail, level="machine")
    with ikp.profile() as prof:
        recorded = [product(marked) for _ in range(3)]
    assert all(torch.equal(plain, each) for each in recorded)

    trace = prof.trace
    assert [launch.dropped for launch in trace.launches] == [0, 0, 0]
    assert trace.slots.finished.all()
    names = Counter(trace.regions[i].name.partition(" @")[0] for i in trace.events.region)
    assert names["matmul"] == 3 * TILES * WARPS
    assert names["loop"] in (0, 3 * TILES * WARPS)
    assert (trace.events.end_ns >= trace.events.start_ns).all()


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
def test_outside_a_session_and_with_recording_off_it_runs_plain() -> None:
    marked = ikp.instrument(unedited.matmul, detail="kernel", level="machine")
    plain = product(unedited.matmul)
    assert torch.equal(plain, product(marked))
    with ikp.profile(enabled=False):
        assert torch.equal(plain, product(marked))
    with ikp.profile() as prof:
        product(marked)
    assert torch.equal(plain, product(marked))  # the session's memory is no longer written
    assert len(prof.trace.launches) == 1


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
def test_a_graph_records_and_keeps_its_last_replay() -> None:
    plain = product(unedited.matmul)
    marked = ikp.instrument(unedited.matmul, detail="loops", level="machine")
    torch.manual_seed(0)
    a = torch.randn((M, K), device="cuda", dtype=torch.float16)
    b = torch.randn((K, N), device="cuda", dtype=torch.float16)
    c = torch.zeros((M, N), device="cuda", dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with ikp.profile() as prof:
        with torch.cuda.graph(graph):
            marked[(TILES,)](a, b, c, M, N, K, **SIZES, num_warps=WARPS, num_stages=STAGES)
        for _ in range(3):
            c.zero_()
            graph.replay()
    assert torch.equal(c, plain)
    (launch,) = prof.trace.launches
    assert launch.relaunches == 2
    assert launch.dropped == 0
    assert prof.trace.slots.finished.all()
    graph.replay()  # into memory that outlives the session
    torch.cuda.synchronize()


def test_a_session_that_asks_for_more_is_refused_in_words() -> None:
    marked = ikp.instrument(unedited.matmul, detail="kernel", level="machine")
    with ikp.profile(clock="globaltimer"), pytest.raises(ikp.IkpError, match="globaltimer"):
        product(marked)
