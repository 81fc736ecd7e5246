"""The examples ported from other profilers, on a GPU: every record of each is there."""

import json
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:nvidia_cutlass_dsl"),
    pytest.mark.filterwarnings("ignore::UserWarning:cutlass"),
]


def regions(trace: ikp.Trace, label: str) -> Counter[str]:
    frame = trace.to_pandas()
    return Counter(frame[frame.label == label].region)


def test_the_tilewise_copy_of_triton_distributed(tmp_path: Path) -> None:
    from examples import from_triton_distributed

    from_triton_distributed.main(tmp_path / "t.pftrace")
    trace = ikp.load(tmp_path / "t.pftrace")
    (launch,) = trace.launches
    blocks, warps = launch.grid[0], launch.warps_per_block
    assert regions(trace, "copy") == {
        "perfect": (6 * blocks + 1) * warps,
        "non-perfect": warps,
        "barrier": blocks * warps,
    }
    frame = trace.to_pandas()
    waits = frame[frame.region == "barrier"]
    assert waits.start_ns.max() <= waits.end_ns.min() + 2000, "nobody leaves before all have come"


def test_the_quick_start_of_sm_profiler(tmp_path: Path) -> None:
    from examples import from_sm_profiler

    from_sm_profiler.main(tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = Counter(event["name"] for event in found if event["ph"] in "Xi")
    slots = 1024 * 4
    assert [names[name] for name in ("memory", "compute", "sync")] == [
        slots * 65, slots * 64, slots
    ]  # fmt: skip


def test_the_tutorial_of_proton_with_increased_accuracy(tmp_path: Path) -> None:
    from examples import from_proton

    from_proton.main(["--increase-accuracy", str(tmp_path / "t.pftrace")])
    facts = ikp.load(tmp_path / "t.pftrace").provenance
    assert "cycles in each range" in facts["overhead_deducted"]


@pytest.mark.parametrize("sampled", [False, True])
def test_the_tutorial_of_proton(sampled: bool, tmp_path: Path) -> None:
    from examples import from_proton

    path = tmp_path / "t.pftrace"
    from_proton.main([str(path), *(["--warp-sampling", "--warp-ids", "0,2"] if sampled else [])])
    trace = ikp.load(path)
    warps = 2 if sampled else 4
    scopes = ("kernel", "load_and_add", "load_x", "load_y")
    assert regions(trace, "add") == dict.fromkeys(scopes, 1024 * warps)
    plain = regions(trace, "plain_add_kernel")
    assert plain["plain_add_kernel"] == 1024 * warps
    assert all(count % (1024 * warps) == 0 for count in plain.values())
    assert {name.split()[0] for name in plain} >= {"plain_add_kernel", "load", "store"}
    frame = trace.to_pandas()
    chosen = [0, 2] if sampled else [0, 1, 2, 3]
    assert sorted(frame[frame.label == "plain_add_kernel"].warp.unique()) == chosen
    if torch.cuda.get_device_capability() == (9, 0):
        steps = dict.fromkeys(("issue TMA", "wait TMA", "wgmma"), 64 * 16 * warps)
        assert regions(trace, "matmul") == {**steps, "store": 64 * warps}


@pytest.mark.parametrize("static", [False, True])
def test_the_kernels_of_transformer_nuggets(static: bool, tmp_path: Path) -> None:
    pytest.importorskip("cutlass")
    from examples import from_nuggets_cute

    path = tmp_path / "t.pftrace"
    from_nuggets_cute.main([str(path), *(["--static"] if static else [])])
    trace = ikp.load(path)
    slots = 128 * 4
    assert regions(trace, "nested") == {
        "iteration": slots,
        "compute": 4 * slots,
        "store": 4 * slots,
    }
    frame = trace.to_pandas()
    found = frame[frame.label == "producer and consumer"]
    assert Counter(zip(found.warp, found.role, found.region, strict=True)) == {
        (0, "producer", "produce"): 4,
        (1, "consumer", "consume"): 4,
    }
    assert [launch.dropped for launch in trace.launches] == [0, 0]
