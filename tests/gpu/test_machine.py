"""Records in finished machine code, on a GPU: results bit for bit, and all ranges."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

import ikp  # noqa: E402
from ikp.sass.assembly.chips import CHIPS, UNTESTED  # noqa: E402
from tests.kernels import named, unedited  # noqa: E402

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
def test_a_graph_records_each_replay() -> None:
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
    assert [(each.relaunches, each.dropped) for each in prof.trace.launches] == 3 * [(0, 0)]
    assert prof.trace.slots.finished.all()
    graph.replay()  # into memory that outlives the session
    torch.cuda.synchronize()


def test_a_session_that_asks_for_more_is_refused_in_words() -> None:
    marked = ikp.instrument(unedited.matmul, detail="kernel", level="machine")
    with ikp.profile(clock="globaltimer"), pytest.raises(ikp.IkpError, match="globaltimer"):
        product(marked)


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
@pytest.mark.parametrize(
    ("options", "blocks", "warps"),
    [
        ({"warps": [1, 6]}, range(TILES), (1, 6)),
        ({"blocks": range(1, TILES, 3)}, range(1, TILES, 3), range(WARPS)),
        ({"blocks": range(2, 7), "granularity": 4}, range(2, 7), (0, 4)),
    ],
)
def test_chosen_warps_and_blocks_alone_record(
    options: dict[str, object], blocks: range, warps: tuple[int, ...]
) -> None:
    plain = product(unedited.matmul)
    marked = ikp.instrument(unedited.matmul, detail="ops", level="machine", **options)
    every = ikp.instrument(unedited.matmul, detail="ops", level="machine")
    with ikp.profile() as prof:
        assert all(torch.equal(plain, product(each)) for each in (marked, every, marked))
    trace = prof.trace
    slots, events = trace.slots, trace.events
    assert slots.finished.all() and [each.dropped for each in trace.launches] == [0, 0, 0]
    chosen = [(block, warp) for block in blocks for warp in warps]
    found = [
        list(zip(slots.block[rows], slots.warp[rows], strict=True))
        for rows in (slots.launch == number for number in range(3))
    ]
    assert found[0] == found[2] == chosen and len(found[1]) == TILES * WARPS
    made: dict[int, Counter[tuple[int, int, str]]] = {number: Counter() for number in range(3)}
    for slot, region in zip(events.slot, events.region, strict=True):
        who = int(slots.block[slot]), int(slots.warp[slot])
        made[int(slots.launch[slot])][(*who, trace.regions[region].name)] += 1
    mine = {each: count for each, count in made[1].items() if each[:2] in chosen}
    assert made[0] == made[2] == mine


def test_a_choice_makes_no_launch_wait_for_what_runs() -> None:
    marked = ikp.instrument(unedited.matmul, level="machine", blocks=range(0, TILES, 5))
    with ikp.profile() as prof:
        product(marked)  # is compiled, and has memory for more
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000_000)
        product(marked)
        assert not torch.cuda.current_stream().query(), "the launch waited for what ran before it"
    assert [len(prof.trace.slots), prof.trace.dropped] == [2 * 3 * WARPS, 0]


def line(text: str) -> int:
    """Return the first line of the test kernels with a text."""
    lines = Path(unedited.__file__).read_text().splitlines()
    return next(n for n, each in enumerate(lines, 1) if text in each)


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
def test_chosen_lines_have_ranges_of_what_they_do() -> None:
    plain, number = product(unedited.matmul), line("tl.dot(")
    marked = ikp.instrument(unedited.matmul, lines=f"unedited.py:{number}", level="machine")
    with ikp.profile() as prof:
        assert torch.equal(plain, product(marked))
    trace = prof.trace
    names = Counter(trace.regions[i].name for i in trace.events.region)
    dots = {name: count for name, count in names.items() if name.startswith("dot: ")}
    assert sum(dots.values()) >= TILES * WARPS * STEPS
    assert all(name.endswith(f"@unedited.py:{number}") for name in dots)
    assert "instructions" in trace.provenance["chosen in matmul"]


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
def test_the_launched_code_can_be_inspected() -> None:
    marked = ikp.instrument(unedited.matmul, detail="ops", level="machine")
    with ikp.profile() as prof:
        product(marked)
    (kernel,) = ikp.inspect(prof.trace)
    assert not kernel.warnings and not kernel.problems
    assert sum(copy.named is not None for r in kernel.ranges for copy in r.copies) > 5
    recorded = {prof.trace.regions[i].name for i in prof.trace.events.region}
    assert recorded - {"matmul"} <= {r.name for r in kernel.ranges}


@triton.jit
def counted(x, out, N: tl.constexpr):
    """Each thread tries again until its number was added: 16 bits are exchanged with 32."""
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.atomic_add(out + tl.load(x + at), tl.full((N,), 1.0, tl.float16))


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
@pytest.mark.parametrize("detail", ["loops", "ops"])
def test_threads_that_leave_apart_leave_one_header(detail: str) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 64, (256 * 256,), device="cuda", dtype=torch.int32)
    outs = [torch.zeros(64, device="cuda", dtype=torch.float16) for _ in range(2)]
    counted[(256,)](x, outs[0], 256, num_warps=4)
    marked = ikp.instrument(counted, detail=detail, level="machine")
    with ikp.profile() as prof:
        marked[(256,)](x, outs[1], 256, num_warps=4)
    assert torch.equal(*outs) and outs[0].sum() == 256 * 256
    trace = prof.trace
    names = Counter(trace.regions[i].name.partition(" @")[0] for i in trace.events.region)
    assert names["counted"] == 256 * 4
    assert "loop" not in names, "its threads leave one by one"
    (launch,) = trace.launches
    assert launch.dropped == 0 and not launch.notes and trace.slots.finished.all()


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
def test_a_budget_leaves_out_the_finest() -> None:
    plain = product(unedited.matmul)
    ranges = []
    for most in (9.0, 1.02):
        marked = ikp.instrument(unedited.matmul, detail="ops", level="machine", max_overhead=most)
        with ikp.profile() as prof:
            assert torch.equal(plain, product(marked))
        ranges.append(len(prof.trace.events))
    assert ranges[1] < ranges[0]
    assert "Left out to stay within 1.02" in prof.trace.provenance["chosen in matmul"]


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
def test_a_check_runs_the_plain_kernel_too() -> None:
    plain = product(unedited.matmul)
    marked = ikp.instrument(unedited.matmul, detail="ops", level="machine", check=True)
    with ikp.profile() as prof:
        assert torch.equal(plain, product(marked))
        assert torch.equal(plain, product(marked))
    assert len(prof.trace.launches) == 2
    told = prof.trace.provenance["check of matmul"]
    assert told.startswith("3 buffers, ") and told.endswith(", equal bit for bit")


@triton.jit
def placed(out, steps):
    """Each block says where it is, and how often it went round."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    done = 0
    for step in range(steps):
        tl.debug_barrier()
        done += step
    at = x + tl.num_programs(0) * (y + tl.num_programs(1) * z)
    tl.store(out + at, done + 1000 * x + 100000 * y + 10000000 * z)


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
@pytest.mark.parametrize("grid", [(7, 1, 1), (3, 5, 1), (3, 5, 7), (1, 1, 300)])
def test_blocks_in_any_dimensions_have_slots_of_their_own(grid: tuple[int, int, int]) -> None:
    blocks = grid[0] * grid[1] * grid[2]
    outs = [torch.zeros(blocks, device="cuda", dtype=torch.int32) for _ in range(2)]
    placed[grid](outs[0], 6, num_warps=4)
    with ikp.profile() as prof:
        marked = ikp.instrument(placed, detail="ops", level="machine", sample=1)
        marked[grid](outs[1], 6, num_warps=4)
    assert torch.equal(*outs)
    (launch,), slots = prof.trace.launches, prof.trace.slots
    assert launch.grid == grid and launch.dropped == 0 and slots.finished.all()
    assert Counter(zip(slots.block.tolist(), slots.warp.tolist(), strict=True)) == {
        (block, warp): 1 for block in range(blocks) for warp in range(4)
    }


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
@pytest.mark.parametrize("detail", ["loops", "ops"])
@pytest.mark.parametrize(
    ("grid", "step"), [((257, 1, 1), 7), ((14, 40, 1), 15), ((3, 5, 70), 31), ((1, 1, 256), 1)]
)
def test_of_a_sample_some_record_and_all_tell_when_they_ran(
    grid: tuple[int, int, int], step: int, detail: str
) -> None:
    blocks = grid[0] * grid[1] * grid[2]
    outs = [torch.zeros(blocks, device="cuda", dtype=torch.int32) for _ in range(3)]
    placed[grid](outs[0], 6, num_warps=4)
    with ikp.profile() as prof:
        for out, how in zip(outs[1:], ({}, {"sample": 1}), strict=True):
            marked = ikp.instrument(placed, detail=detail, level="machine", **how)
            marked[grid](out, 6, num_warps=4)
    assert torch.equal(*outs[:2]) and torch.equal(*outs[1:])
    trace, slots, others = prof.trace, prof.trace.slots, prof.trace.others
    assert [each.dropped for each in trace.launches] == [0, 0]
    rows = slots.launch == 0
    chosen = {(block, warp) for block in range(0, blocks, step) for warp in range(4)}
    rest = {(block, warp) for block in range(blocks) for warp in range(4)} - chosen
    for table, which, wanted in ((slots, rows, chosen), (others, others.launch == 0, rest)):
        found = zip(table.block[which].tolist(), table.warp[which].tolist(), strict=True)
        assert Counter(found) == dict.fromkeys(wanted, 1) and table.finished[which].all()
    assert not (others.launch == 1).any()
    by_warp: list[Counter[tuple[int, int, str]]] = [Counter(), Counter()]
    for slot, region in zip(trace.events.slot, trace.events.region, strict=True):
        who = int(slots.block[slot]), int(slots.warp[slot])
        by_warp[slots.launch[slot]][(*who, trace.regions[region].name)] += 1
    assert by_warp[0] == {each: n for each, n in by_warp[1].items() if each[:2] in chosen}
    # All of them ran in one launch, and as long; at "loops" a few ns are no difference.
    took = others.end_ns - others.start_ns
    both = np.append(slots.start_ns[rows], others.start_ns)
    until = np.append(slots.end_ns[rows], others.end_ns)
    assert (took > 0).all() and until.max() - both.min() < 1_000_000
    if len(took):
        assert np.median(took) < 2 * np.median(slots.end_ns[rows] - slots.start_ns[rows])


@triton.jit
def summed(x, out, N: tl.constexpr):
    """Add to what is there: a second run on its own result would give another."""
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(x + at, tl.load(x + at) + 1)
    tl.atomic_add(out, tl.sum(tl.load(x + at)))


def test_a_kernel_that_changes_its_input_has_run_once() -> None:
    marked = ikp.instrument(summed, detail="kernel", level="machine", check=True)
    x = torch.zeros(64 * 256, device="cuda")
    out = torch.zeros(1, device="cuda")
    with ikp.profile() as prof:
        marked[(64,)](x, out, 256)
    assert (x == 1).all() and out.item() == 64 * 256  # whole numbers: any order gives this
    assert prof.trace.provenance["check of summed"].startswith("2 buffers, ")
    assert len(prof.trace.launches) == 1


def test_lines_of_another_file_are_refused_in_words() -> None:
    marked = ikp.instrument(unedited.matmul, lines="other.py:3", level="machine")
    with ikp.profile(), pytest.raises(ikp.IkpError, match=r"it comes from unedited\.py"):
        product(marked)


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
def test_ranges_that_the_source_names_are_recorded_in_the_kernel_without_them() -> None:
    torch.manual_seed(0)
    size, block = 1024, 128
    a, b = (torch.randn((size, size), device="cuda", dtype=torch.float16) for _ in "ab")
    tile = {"BM": block, "BN": block, "BK": 64}
    grid = (size // block, size // block)

    def launch(kernel, *prof):
        c = torch.zeros_like(a)
        made = {"num_warps": 8, "num_stages": 3}
        kernel[grid](a, b, c, size, size, *prof, **tile, **made)
        return c

    plain = launch(named.matmul_plain)
    marked = ikp.instrument(named.matmul, ranges=True)
    with ikp.profile() as prof:
        assert torch.equal(launch(marked, None), plain)
    trace = prof.trace
    counts = Counter(trace.regions[i].name for i in trace.events.region)
    warps = grid[0] * grid[1] * 8
    assert counts["matmul"] == warps
    turns = {counts[name] for name in counts if name.startswith("dot: issue")}
    assert turns == {warps * size // tile["BK"]}
    assert {name.partition(":")[0] for name in counts} == {"matmul", "load", "dot", "store"}
    assert trace.launches[0].dropped == 0


@pytest.mark.filterwarnings("ignore:.*is not recorded.*")
def test_a_thousand_launches_are_equal_bit_for_bit() -> None:
    plain = product(unedited.matmul)
    marked = ikp.instrument(unedited.matmul, detail="ops", level="machine")
    for _ in range(20):
        with ikp.profile() as prof:
            recorded = [product(marked) for _ in range(50)]
        assert all(torch.equal(plain, each) for each in recorded)
        assert [launch.dropped for launch in prof.trace.launches] == [0] * 50
