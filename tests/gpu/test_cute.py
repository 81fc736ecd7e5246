"""CuTe kernels on a GPU: what comes back is exactly what the kernel did."""

import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import ikp  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:nvidia_cutlass_dsl"),
    pytest.mark.filterwarnings("ignore::UserWarning:cutlass"),
]


def run(prof: object, out: object, n: int, grid: tuple[int, ...], threads: int) -> None:
    from cutlass.cute.runtime import from_dlpack

    from tests.gpu import cute_kernels

    cute_kernels.launch(from_dlpack(out), n, prof, [*grid, 1, 1][:3], threads)


@pytest.mark.parametrize("grid", [(1,), (300,), (5, 7), (3, 4, 5)])
@pytest.mark.parametrize("threads", [32, 256])
def test_every_record_of_every_warp_comes_back(grid: tuple[int, ...], threads: int) -> None:
    blocks, warps, n = int(np.prod(grid)), threads // 32, 7
    out = torch.empty(blocks * threads, device="cuda")
    with ikp.profile() as prof:
        run(prof.buffer("k", regions={0: "zero", 1: "one", 2: "two"}), out, n, grid, threads)
    trace = prof.trace
    (launch,) = trace.launches
    assert launch.backend == "cute"
    assert launch.grid == (*grid, 1, 1)[:3]
    assert launch.notes == ()
    assert trace.slots.finished.all()
    extra = blocks if warps > 1 else 0
    assert launch.attempted == launch.kept == blocks * warps * (4 * n + 2) + extra
    frame = trace.to_pandas()
    frame["slot"] = trace.events.slot
    for _, slot in frame.groupby("slot"):
        names = slot.region.tolist()
        assert names.count("step") == names.count("helper") == n
        assert slot.loc[slot.region == "step", "payload"].tolist() == list(range(n))
        assert slot.loc[slot.region == "flight", "payload"].tolist() == list(range(n + 1))
        assert (names.count("zero"), names.count("one"), names.count("two")) == (3, 2, 2)
        assert names[-1] == "outer"
        assert slot.end_ns.is_monotonic_increasing
    expected = sum(range(n)) + n
    assert (out == expected).all()


def needs_hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("clusters, setmaxregister and WGMMA as Hopper has them")


def test_a_persistent_kernel_of_clusters() -> None:
    from cutlass.cute.runtime import from_dlpack

    from tests.backends.cute import persistent

    needs_hopper()
    tiles = int(np.prod(persistent.TILES))
    out = torch.zeros(tiles, persistent.THREADS, device="cuda")
    with ikp.profile() as prof:
        persistent.Persistent()(from_dlpack(out), prof.buffer("k"))
    (launch,) = prof.trace.launches
    assert (out == 1).all()
    assert launch.grid == (2, 1, persistent.CLUSTERS)
    assert launch.notes == ()
    assert prof.trace.slots.finished.all()
    frame = prof.trace.to_pandas()
    for role in ("first role", "second role"):
        found = frame[frame.region == role].payload.value_counts()
        assert found.to_dict() == dict.fromkeys(range(tiles), 4)  # each tile, by each warp once
    ranks = frame[frame.region == "wait for cluster"]
    assert (ranks.payload == ranks.block % 2).all()
    assert len(ranks) == len(prof.trace.slots.finished)


def test_the_gemm_example(tmp_path: Path) -> None:
    from examples import gemm_cute

    needs_hopper()
    gemm_cute.main(tmp_path / "gemm.pftrace")
    trace = ikp.load(tmp_path / "gemm.pftrace")
    (launch,) = trace.launches
    assert launch.dropped == 0
    tiles, steps, warps = 32 * 16, 64, 4 * gemm_cute.CONSUMERS
    frame = trace.to_pandas()
    roles = set(zip(frame.warp, frame.role, strict=True))
    assert roles == {*((warp, "consumer") for warp in range(warps)), (warps, "producer")}
    assert frame.region.value_counts().to_dict() == {
        "wait empty": tiles * steps,
        "issue TMA": tiles * steps,
        "wait drained": launch.grid[0],
        "wait full": tiles * steps * warps,
        "issue WGMMA": tiles * steps * warps,
        "wait WGMMA": tiles * steps * warps,
        "store": tiles * warps,
    }


def test_off_and_overflow() -> None:
    out = torch.empty(64 * 128, device="cuda")
    session = ikp.profile()
    with pytest.warns(ikp.IkpWarning, match="records dropped"), session as prof:  # noqa: PT031
        run(prof.buffer("k", size=128 + 256 * (64 + 10 * 16)), out, 50, (64,), 128)
        run(prof.buffer("off", enabled=False), out, 50, (64,), 128)
        run(None, out, 50, (64,), 128)
    (launch,) = prof.trace.launches
    assert launch.capacity == 10
    assert launch.kept == 2560
    assert launch.attempted == 256 * 202 + 64


def test_three_languages_in_one_session() -> None:
    from tests.gpu import gluon_kernels, kernels

    out = torch.empty(64 * 1024, device="cuda")
    ints = torch.empty(64 * 1024, dtype=torch.int32, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ikp.IkpWarning)
        with ikp.profile() as prof:
            kernels.counted[(64,)](out, 3, prof.buffer("triton"), PAYLOAD=True)
            gluon_kernels.specialised[(64,)](ints, 3, prof.buffer("gluon"), num_warps=4)
            run(prof.buffer("cute"), out, 3, (64,), 128)
    assert [launch.backend for launch in prof.trace.launches] == ["triton", "gluon", "cute"]
    starts = [prof.trace.slots.start_ns[prof.trace.slots.launch == i].min() for i in range(3)]
    assert starts == sorted(starts)


def compiled(prof: object, options: str = "") -> object:
    """Return the counting kernel's host function, compiled for 4 blocks of 64 threads."""
    from cutlass import Int32, cute
    from cutlass.cute.runtime import from_dlpack

    from tests.gpu import cute_kernels

    out = from_dlpack(torch.empty(256, device="cuda"))
    arguments = (out, Int32(3), prof, [4, 1, 1], 64)
    return cute.compile(cute_kernels.launch, *arguments, options=options)


@pytest.mark.parametrize("options", ["", "--enable-tvm-ffi"])
@pytest.mark.parametrize("called_before", [False, True])
def test_none_after_a_buffer_touches_no_memory(called_before: bool, options: str) -> None:
    from cutlass.cute.runtime import from_dlpack

    if options:
        pytest.importorskip("tvm_ffi")
    out = torch.empty(256, device="cuda")
    given = out if options else from_dlpack(out)
    with ikp.profile() as prof:
        buffer = prof.buffer("k", size=1 << 20)
        called = compiled(buffer, options)
        called(given, 3, buffer)  # type: ignore[operator]
        function = called if called_before else compiled(buffer, options)
    (launch,) = prof.trace.launches
    assert launch.kept == launch.attempted == 8 * (4 * 3 + 2) + 4
    torch.cuda.synchronize()
    buffer.data.zero_()
    out.zero_()
    function(given, 3, None)  # type: ignore[operator]
    torch.cuda.synchronize()
    assert (out == sum(range(3)) + 3).all()
    assert not buffer.data.any()


def test_a_function_compiled_with_none_refuses_a_buffer() -> None:
    from cutlass.cute.runtime import from_dlpack

    out = from_dlpack(torch.empty(256, device="cuda"))
    function = compiled(None)
    function(out, 3, None)  # type: ignore[operator]
    with ikp.profile() as prof:
        buffer = prof.buffer("k")
        with pytest.raises(ikp.IkpError, match="compiled with None"):
            function(out, 3, buffer)  # type: ignore[operator]
        prof.discard(buffer)
    torch.cuda.synchronize()
