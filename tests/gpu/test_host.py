"""``ikp run --host`` on a GPU: launches lie within their records, also of merged processes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import ikp  # noqa: E402
from ikp.exporters.perfetto import PerfettoExporter  # noqa: E402
from ikp.host_traces.placing import place  # noqa: E402
from tests.gpu.host_program import STEPS  # noqa: E402
from tests.gpu.test_driver import known_chip  # noqa: E402
from tests.kernels.relay import relay  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("known_chip")]

__all__ = ["known_chip"]

PLACED = re.compile(
    r"placed by clocks, at most ([\d.]+) us off; (\d+) of (\d+) launches are within 1 us of their "
    r"kernel record, (.*)\."
)


def recorded(path: Path, *words: str, ends: int = 0) -> subprocess.CompletedProcess[str]:
    options = ("--launch", ":", "--detail", "kernel", "--kernel", "scaled*", "--out", str(path))
    command = [sys.executable, "-m", "ikp", "run", "--host", *options, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == ends, done.stderr
    return done


PROGRAM = ("-m", "tests.gpu.host_program")


def check(said: str, processes: int) -> None:
    found = PLACED.findall(said)
    assert len(found) == processes, said
    for bound, inside, matched, worst in found:
        print(f"bound {bound} us, {inside} of {matched} inside, {worst}")
        assert float(bound) < 5
        assert int(inside) >= 0.999 * int(matched) and int(matched) > STEPS


def test_a_program_is_beside_its_launches(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    check(recorded(path, *PROGRAM).stderr, 1)
    (host,) = PerfettoExporter().read_beside(path)
    kinds: dict[str, set[str]] = {}
    for each in host.slices:
        kinds.setdefault(each.category, set()).add(each.name)
    assert {f"step {number}" for number in range(STEPS)} <= kinds["user_annotation"]
    assert "cudaGraphLaunch" in kinds["cuda_runtime"] and "aten::matmul" in kinds["cpu_op"]
    assert "NVTX: launch" in kinds["cpu_op"]
    assert any("softmax" in name for name in kinds["kernel"])
    calls = {each.correlation for each in host.slices if each.category.startswith("cuda_")}
    copies = [each for each in host.slices if each.category in ("gpu_memcpy", "gpu_memset")]
    assert [each for each in copies if each.correlation not in calls] == [], "ikp's own"
    launched = place(ikp.load(path), host, "clocks").record
    assert len(launched) == len(ikp.load(path).launches)
    assert {name for name in kinds["kernel"] if "ikp" in name} <= {"ikp_replay"}


def test_the_programs_own_profiler_is_whole(tmp_path: Path) -> None:
    done = recorded(tmp_path / "x.pftrace", *PROGRAM, "profiles")
    assert done.stdout.startswith("True\n")
    check(done.stderr, 1)
    assert "recorded in part: the program begins a torch.profiler of its own" in done.stderr


def test_a_limit_ends_it_without_a_word_on_the_programs_stderr(tmp_path: Path) -> None:
    done = recorded(tmp_path / "x.pftrace", "--host-seconds", "0.01", *PROGRAM)
    assert "what the host did is recorded for 0.01 s" in done.stderr
    assert "Toggling" not in done.stderr and "USDT" not in done.stderr


TERMINATED = """\
import os, signal, time, torch
from tests.gpu.host_program import scaled
x = torch.randn(1 << 20, device="cuda")
for _ in range(50):
    scaled[(1024,)](x, x, x.numel(), BLOCK=1024)
torch.cuda.synchronize()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""


def test_sigterm_leaves_both(tmp_path: Path) -> None:
    done = recorded(tmp_path / "x.pftrace", "-c", TERMINATED, ends=-signal.SIGTERM)
    check(done.stderr, 1)


def order_of_launches(path: Path) -> tuple[list[int], list[int]]:
    """Return the launches' records in the order of the numbers, and in that of the thread's calls.

    One thread launches: the n-th call that has a record of the kernel is of the n-th launch.
    """
    (host,), trace = PerfettoExporter().read_beside(path), ikp.load(path)
    record = place(trace, host, "clocks").record
    numbered = sorted(range(len(trace.launches)), key=lambda each: trace.launches[each].number)
    assert all(trace.launches[each].number for each in numbered)
    name = host.slices[record[0]].name
    of = {each.correlation: index for index, each in enumerate(host.slices) if each.name == name}
    calls = [each for each in host.slices if each.category in ("cuda_runtime", "cuda_driver")]
    calls.sort(key=lambda each: each.start_ns)
    called = [of[each.correlation] for each in calls if each.correlation in of]
    return [record[each] for each in numbered], called


@pytest.mark.parametrize("program", ["streams", "by hand"])
def test_two_kernels_of_one_name_at_once_are_told_apart(program: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    if program == "streams":
        said = recorded(path, *PROGRAM, "streams").stderr
        check(said, 1)
        assert f"{2 * STEPS} are matched by correlation id." in said
    else:
        two_streams_by_hand(path)
    ours, called = order_of_launches(path)
    assert ours == called and len(ours) == 2 * STEPS
    (host,) = PerfettoExporter().read_beside(path)
    spans = sorted((host.slices[each].start_ns, host.slices[each].end_ns) for each in ours)
    overlap = any(end > begin for (_, end), (begin, _) in pairwise(spans))
    assert overlap or program == "by hand"


def two_streams_by_hand(path: Path) -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    tiles, out = (torch.zeros(200, dtype=torch.int32, device="cuda") for _ in range(2))
    relay[(2,)](tiles, out, 200, None)
    torch.cuda.synchronize()
    with ikp.profile(path, host=True) as prof:
        for number in range(2 * STEPS):
            with torch.cuda.stream(streams[number % 2]):
                relay[(2,)](tiles, out, 200, prof.buffer("relay"))
    assert f"{2 * STEPS} are matched by correlation id." in str(ikp.load(path).stats())


def test_library_kernels_in_a_graph_leave_the_profile_whole(tmp_path: Path) -> None:
    """Their launches are calls of the runtime, inside which ikp may make none of its own."""
    path = tmp_path / "x.pftrace"
    options = ("--no-explain", "--launch", ":", "--detail", "kernel", "--kernel", "*elementwise*")
    command = [sys.executable, "-m", "ikp", "run", "--host", *options, "--out", str(path)]
    done = subprocess.run([*command, *PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ((_, inside, matched, _),) = PLACED.findall(done.stderr)
    assert inside == matched and int(matched) >= 10, done.stderr


def test_two_processes_on_one_gpu_are_merged(tmp_path: Path) -> None:
    path, whole = tmp_path / "x.pftrace", tmp_path / "all.pftrace"
    check(recorded(path, "torchrun", "--nproc-per-node", "2", *PROGRAM).stderr, 2)
    parts = [tmp_path / f"x.rank{rank}.pftrace" for rank in (0, 1)]
    command = [sys.executable, "-m", "ikp", "merge", *map(str, parts), str(whole)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "no arrows" not in done.stderr
    hosts, trace = PerfettoExporter().read_beside(whole), ikp.load(whole)
    assert len(hosts) == 2
    assert {each.rank for each in trace.launches} == {0, 1}
    for rank, host in enumerate(hosts):
        own = ikp.edit.select(trace, rank=rank)
        assert len(place(own, host, "clocks").record) == len(own.launches)
