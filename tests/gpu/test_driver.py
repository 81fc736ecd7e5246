"""Kernels that the CUDA driver alone sees, under ``ikp run``: recorded, and computing the same."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import ikp  # noqa: E402
from ikp.core.warps import launch_bounds  # noqa: E402
from tests.gpu.driver_program import BURST, BURSTS, LEARNED  # noqa: E402

pytestmark = pytest.mark.gpu

PROGRAM = ["-m", "tests.gpu.driver_program"]
API = ["-m", "tests.gpu.driver_api"]


@pytest.fixture(autouse=True)
def known_chip() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("records in machine code are known for sm_90 alone")


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("what", "options", "label"),
    [
        ("own", ["--kernel", "*layer_norm*"], "vectorized_layer_norm_kernel"),
        ("own", ["--kernel", "*"], "vectorized_layer_norm_kernel"),
        ("compiled", [], "triton_"),
        ("graph", ["--kernel", "*elementwise*"], "vectorized_elementwise_kernel"),
    ],
)
def test_results_are_equal_and_launches_recorded(
    what: str, options: list[str], label: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.pftrace"
    plain = ran(*PROGRAM, what)
    done = ran(
        *("-m", "ikp", "run", "--level", "machine", *options, "--out", str(path)), *PROGRAM, what
    )
    assert done.stdout == plain.stdout
    trace = ikp.load(path)
    found = [each for each in trace.launches if label in each.label]
    assert found, done.stderr
    assert all(each.dropped == 0 for each in found)
    assert trace.slots.finished.all()
    if what == "graph":
        assert {each.relaunches for each in found} == {0}
        assert len(found) >= 4, "the launch of the warm-up, and three replays"


@pytest.mark.parametrize("detail", ["kernel", "loops", "waits", "ops"])
def test_reductions_compute_the_same(detail: str, tmp_path: Path) -> None:
    """A fault on the GPU ends the program: `at::native::reduce_kernel` had one at every detail."""
    path = tmp_path / "x.pftrace"
    plain = ran(*PROGRAM, "reduced")
    options = ("--level", "machine", "--kernel", "*", "--detail", detail, "--out", str(path))
    done = ran("-m", "ikp", "run", *options, *PROGRAM, "reduced")
    assert done.stdout == plain.stdout
    labels = {each.label for each in ikp.load(path).launches}
    assert any("reduce_kernel" in each for each in labels), done.stderr


def under_ikp(path: Path, what: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program with all its kernels recorded."""
    common = ("--level", "machine", "--kernel", "*", "--launch", ":", "--detail", "kernel")
    return ran("-m", "ikp", "run", *common, *options, "--out", str(path), *API, what)


def test_a_kernel_that_has_an_unloaded_ones_handle_is_launched(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    done = under_ikp(path, "unloads")
    assert done.stdout == ran(*API, "unloads").stdout == f"{list(range(12))}\n"
    labels = [each.label for each in ikp.load(path).launches]
    assert sum(each.startswith("writes") for each in labels) == 12, done.stderr


def test_a_dependent_launch_overlaps_with_records_too(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    done = under_ikp(path, "overlaps")
    assert ran(*API, "overlaps").stdout == done.stdout == "overlaps\n", done.stderr
    assert {each.label for each in ikp.load(path).launches} >= {"first", "second"}, done.stderr


def test_a_kernel_for_which_shared_memory_is_preferred_is_so_with_records(tmp_path: Path) -> None:
    """The preference costs this kernel much: its copy without it would be faster than the plain."""
    path = tmp_path / "x.pftrace"
    plain = [float(each) for each in ran(*API, "caches").stdout.split()]
    recorded = [float(each) for each in under_ikp(path, "caches").stdout.split()]
    assert any(each.label == "reads" for each in ikp.load(path).launches)
    if plain[1] < 1.1 * plain[0]:
        pytest.skip(f"the preference makes no difference here: {plain}")
    assert recorded == pytest.approx(plain, rel=0.05)


def test_what_the_driver_compiles_is_recorded(tmp_path: Path) -> None:
    """PTX, with a variable that the program has written."""
    path = tmp_path / "x.pftrace"
    done = under_ikp(path, "compiled")
    expected = [(7 + 7 + 11) * 5 * each for each in range(32)]
    assert ran(*API, "compiled").stdout == done.stdout == f"{expected}\n", done.stderr
    assert sum(each.label == "scales" for each in ikp.load(path).launches) == 3, done.stderr


def test_graphs_of_the_driver_are_recorded_replay_by_replay(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    done = under_ikp(path, "captures", "--replays", "1000")
    assert done.stdout == ran(*API, "captures").stdout, done.stderr
    trace = ikp.load(path)
    found = [each for each in trace.launches if each.label == "adds"]
    replays = 20 + 2 + 3 + 2 + 2 * 10
    assert len(found) == 3 * replays, done.stderr
    assert trace.slots.finished.all() and {each.relaunches for each in found} == {0}


def test_the_body_of_a_conditional_node_is_as_without_and_the_report_says_why(
    tmp_path: Path,
) -> None:
    plain = ran(*API, "conditional").stdout
    done = under_ikp(tmp_path / "x.pftrace", "conditional")
    assert done.stdout == plain, done.stderr
    assert "cuStreamBeginCaptureToGraph" in done.stderr


def test_launches_with_buffers_taken_ahead_are_all_recorded_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    options = ("--kernel", "*CUDAFunctorOnSelf_add*", "--launch", ":", "--detail", "kernel")
    done = ran("-m", "ikp", "run", *options, "--out", str(path), *PROGRAM, "bursts")
    assert done.stdout == ran(*PROGRAM, "bursts").stdout
    trace = ikp.load(path)
    assert len(trace.launches) == 2 * BURSTS * BURST, done.stderr
    assert trace.slots.finished.all() and not any(each.dropped for each in trace.launches)
    first, _ = launch_bounds(trace)
    begun = first.astype("i8")
    late = [int((begun[:at] > each).sum()) for at, each in enumerate(begun.tolist())]
    assert max(late) <= 2 * BURST, "two threads alone are out of order, by no more than a burst"


def test_windows_have_the_replays_of_graphs_captured_before(tmp_path: Path) -> None:
    path, switch = tmp_path / "x.pftrace", tmp_path / "go"
    os.environ["SWITCH"] = str(switch)
    plain = ran(*PROGRAM, "windowed")
    switch.unlink(missing_ok=True)
    options = ("--while", str(switch), "--replays", "100", "--kernel", "*elementwise*")
    done = ran("-m", "ikp", "run", *options, "--out", str(path), *PROGRAM, "windowed")
    assert done.stdout == plain.stdout
    traces = [ikp.load(each) for each in sorted(tmp_path.glob("*.window*.pftrace"))]
    assert [len(each.launches) for each in traces] == [2 * 7, 2 * 2], done.stderr
    for each in traces:
        assert each.slots.finished.all()
        assert all(one.replay.startswith("CUDA graph 1, replay") for one in each.launches)
        assert all(one.clock.unix_bound_ns is not None for one in each.launches)
        assert not any(region.name.startswith("region ") for region in each.regions)


def test_profile_endpoints_of_servers_open_windows(tmp_path: Path) -> None:
    """Those of vLLM and SGLang call cudaProfilerStart and cudaProfilerStop in each worker."""
    path = tmp_path / "x.pftrace"
    options = ("--idle", "--replays", "100", "--kernel", "*elementwise*", "--out", str(path))
    done = ran("-m", "ikp", "run", *options, *PROGRAM, "endpoints")
    assert done.stdout == ran(*PROGRAM, "endpoints").stdout
    traces = [ikp.load(each) for each in sorted(tmp_path.glob("*.window*.pftrace"))]
    assert [len(each.launches) for each in traces] == [2 * 7, 2 * 2], done.stderr


def test_what_torch_compile_replays_is_as_without(tmp_path: Path) -> None:
    """Beside memory that torch watches, and with each replay of its graphs."""
    path = tmp_path / "x.pftrace"
    plain = ran(*PROGRAM, "overhead")
    done = ran("-m", "ikp", "run", "--kernel", "*", "--out", str(path), *PROGRAM, "overhead")
    assert done.stdout == plain.stdout
    labels = Counter(each.label for each in ikp.load(path).launches)
    assert max(labels.values()) >= 4, done.stderr


@pytest.mark.parametrize("detail", ["kernel", "ops"])
def test_each_replay_of_a_compiled_model_that_learns_is_recorded(
    detail: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.pftrace"
    plain = ran(*PROGRAM, "trained")
    options = ["--kernel", "triton_*", "--launch", ":", "--replays", "64", "--detail", detail]
    done = ran("-m", "ikp", "run", *options, "--out", str(path), *PROGRAM, "trained")
    assert done.stdout == plain.stdout
    launches = ikp.load(path).launches
    replays = Counter(each.label for each in launches if each.replay)
    print(replays, Counter(each.label for each in launches))
    assert len(replays) >= 2, "there, and back"
    assert {*replays.values()} == {LEARNED - 1}, done.stderr
    assert all(each.dropped == 0 and each.unfinished == 0 for each in launches)


def test_what_cufft_launches_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    done = under_ikp(path, "fft")
    assert done.stdout == ran(*API, "fft").stdout
    assert any("fft" in each.label.lower() for each in ikp.load(path).launches), done.stderr
