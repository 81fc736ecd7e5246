"""``ikp run --host``: what the host did is beside the launches, in each process's own file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import ikp
from ikp.cli.main import cli
from ikp.errors import UsageError
from ikp.exporters.perfetto import PerfettoExporter
from ikp.probing import Feature, Foreign, Private
from ikp.profiling import foreign, torch_profiler
from ikp.running._process_host import ProcessHost
from tests.backends.renaming import named, renamed, told_once
from tests.repo.tree import ROOT
from tests.running.test_children import COMMAND, KERNEL
from tests.trace_processor.query import columns
from tests.trace_processor.server import open_trace

pytestmark = pytest.mark.skipif("not __import__('importlib.util').util.find_spec('triton')")

PROGRAM = """\
import os, signal, subprocess, sys, threading, time
import kern, torch
torch.ones(3).exp()
def other():
    with torch.profiler.record_function("other thread"): torch.ones(3).cos()
kern.work(1)
with torch.profiler.record_function("step"):
    torch.ones(3).sin()
    kern.work(1)
with torch.cuda.nvtx.range("outer {}", 7):
    torch.cuda.nvtx.range_push("inner"); torch.ones(3).acos(); depth = torch.cuda.nvtx.range_pop()
    torch.ones(3).asin()
print("depth", depth, flush=True)
thread = threading.Thread(target=other); thread.start(); thread.join()
subprocess.run([sys.executable, "-c", sys.argv[1]])
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""
CHILD = """\
import kern, torch
from torch.profiler import profile
kern.work(1)
torch.ones(3).sin()
with profile() as theirs:
    torch.ones(3).tan()
    kern.work(1)
print([each.key for each in theirs.key_averages() if each.key in ("aten::tan", "aten::sin")])
torch.ones(3).sinh()
"""


def run(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "kern.py").write_text(KERNEL)
    (folder / "prog.py").write_text(program)
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(folder)}
    command = [sys.executable, COMMAND, "run", "--host", "prog.py", *words]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, env=env, timeout=300
    )


@pytest.mark.tp
def test_processes_have_what_their_host_did_however_they_end(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAM, CHILD)
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert done.stdout == "depth -2\n['aten::tan']\n"  # as without ikp
    assert done.stderr.count("torch.profiler: placed by the host's clock") == 2
    assert "USDT" not in done.stderr  # Kineto's own words
    (aside,) = (line for line in done.stderr.splitlines() if "--host" in line)
    assert "recorded in part: the program begins a torch.profiler of its own" in aside
    assert ": --host: " in aside and aside.startswith("ikp: process ")
    path = tmp_path / "ikp-prog.pftrace"
    made = ikp.load(path)
    with open_trace(path) as processor:
        found = columns(
            processor, "select name, ts, ts + dur as end from slice where category is not null"
        )
    spans = dict(zip(found["name"], zip(found["ts"], found["end"], strict=True), strict=True))
    assert {"step", "aten::sin", "other thread", "aten::cos"} <= spans.keys()
    nested = ("NVTX: outer 7", "NVTX: inner", "aten::acos")
    around = [spans[name] for name in nested]
    assert all(a[0] <= b[0] <= b[1] <= a[1] for a, b in pairwise(around))
    assert spans["NVTX: inner"][1] <= spans["aten::asin"][0] <= spans["NVTX: outer 7"][1]
    assert "aten::exp" not in spans, "before the first launch"
    begin, end = spans["step"]
    assert begin <= made.slots.start_ns.max() <= made.slots.end_ns.max() <= end
    with open_trace(tmp_path / "ikp-prog.child1.pftrace") as processor:
        found = columns(processor, "select name from slice where category is not null")
    names = set(found["name"])
    assert "aten::sin" in names and not names & {"aten::tan", "aten::sinh"}


WITHOUT_LAUNCHES = """\
import os, subprocess, sys, torch, triton
IDLE = (
    "import torch, triton; [begin() for begin, _ in list(torch.cuda._queued_calls)"
    " if begin.__module__.startswith('ikp')]"
)
for begin, _ in list(torch.cuda._queued_calls):  # as torch does when it initialises CUDA
    if begin.__module__.startswith("ikp"): begin()
torch.ones(3).sin() if "RANK" in os.environ else torch.ones(3).cos()
if "RANK" not in os.environ:
    subprocess.run([sys.executable, __file__], env={**os.environ, "RANK": "1", "WORLD_SIZE": "2"})
    subprocess.run([sys.executable, "-c", IDLE])
"""


@pytest.mark.any_pins
def test_a_process_without_launches_has_what_its_host_did(tmp_path: Path) -> None:
    """A rank that launches nothing, or kernels of libraries alone, is in the picture."""
    done = run(tmp_path, WITHOUT_LAUNCHES)
    assert done.returncode == 0, done.stderr
    path, rank, whole = (tmp_path / f"ikp-prog.{end}pftrace" for end in ("", "rank1.", "all."))
    assert f"ikp: no kernel was recorded. Wrote {path}, with what the host did.\n" in done.stderr
    assert f"0 of 0 launches recorded, of 0 kernels. Wrote {rank}\n" in done.stderr
    assert done.stderr.count("torch.profiler: placed by the host's clock.") == 2
    assert len(ikp.load(whole).launches) == 0
    names = [
        {each.name for each in host.slices} & {"aten::sin", "aten::cos"}
        for host in PerfettoExporter().read_beside(whole)
    ]
    assert names == [{"aten::cos"}, {"aten::sin"}]
    assert "next: ikp view ikp-prog.all.pftrace" in done.stderr
    assert {each.name for each in tmp_path.glob("*.pftrace")} == {path.name, rank.name, whole.name}
    assert "child" not in done.stderr, "a process that did nothing leaves no file, and no word"


@pytest.mark.any_pins
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--idle",), "would break the capture of a CUDA graph"),
        (("--while", "go"), "--host goes with no window"),
        (("--out", "x.json"), "give the path of a .pftrace"),
    ],
)
def test_what_host_does_not_go_with(words: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["run", "--host", *words, str(tmp_path / "x.py")])
    assert done.exit_code == 1 and reason in done.output.replace("\n", " ")


class Torch:
    """What ``ProcessHost`` sees of torch, and what it does with a profiler."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.queue: list[Callable[[], None]] = []
        self.did: list[str] = []
        self.paused = threading.Event()
        self.fails: Exception | None = None
        self.profilers = SimpleNamespace(_enable_profiler=lambda: self.did.append("theirs"))
        patch.setitem(sys.modules, foreign.CUDA, SimpleNamespace(_lazy_call=self.queue.append))
        patch.setitem(sys.modules, foreign.PROFILERS, self.profilers)
        patch.setattr(foreign, "TORCH", SimpleNamespace(has=lambda _: True))
        patch.setattr(torch_profiler, "HostRecording", self._began)

    def _began(self, *, everywhere: bool) -> Torch:
        assert everywhere
        self.profilers._enable_profiler()  # as torch's own does
        if self.fails is not None:
            raise self.fails
        self.did[-1] = "begin"
        return self

    def pause(self) -> None:
        self.did.append("pause")
        self.paused.set()

    def halt(self) -> None:
        self.did.append("halt")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return Torch(monkeypatch)


pins = pytest.mark.any_pins


@pins
def test_where_torch_is_not_imported_a_line_says_so() -> None:
    (line,) = ProcessHost(60).lines()
    not_recorded = "--host: what the host did is not recorded: the program does not import torch, "
    assert line.startswith(not_recorded)


@pins
def test_it_begins_as_cuda_does_and_ends_at_its_limit(torch: Torch) -> None:
    host, session = (
        ProcessHost(0.01),
        SimpleNamespace(accompany=lambda each: torch.did.append("joined")),
    )
    with host.stepping_in():
        (began,) = torch.queue
        assert torch.did == [] and "not initialised CUDA" in host.lines()[0]
        host.accompany(session)  # type: ignore[arg-type]
        began()
        assert torch.paused.wait(60)
    host.end(waits=True)
    assert torch.did == ["begin", "joined", "pause"]
    assert host.lines() == ["--host: what the host did is recorded for 0.01 s (--host-seconds)."]
    began()
    assert torch.did.count("begin") == 1


@pins
@pytest.mark.parametrize("first", [True, False])
def test_it_steps_aside_for_the_programs_own(first: bool, torch: Torch) -> None:
    host = ProcessHost(60)
    with host.stepping_in():
        if not first:
            torch.queue[0]()
        torch.profilers._enable_profiler()
        torch.profilers._enable_profiler()
        torch.queue[0]()
    assert torch.did == [*([] if first else ["begin", "halt"]), "theirs", "theirs"]
    how = "not recorded" if first else "recorded in part"
    (line,) = host.lines()
    assert f"is {how}: the program begins a torch.profiler of its own" in line
    torch.profilers._enable_profiler()
    assert torch.did[-2:] == ["theirs", "theirs"], "nothing of ikp is left"
    host.end(waits=True)


@pins
def test_a_signal_waits_for_no_profiler_that_waits_for_a_kernel(torch: Torch) -> None:
    host, began, over = ProcessHost(60), threading.Event(), threading.Event()
    torch.halt = lambda: (began.set(), over.wait(60))  # type: ignore[method-assign,assignment]
    with host.stepping_in():
        torch.queue[0]()
        program = threading.Thread(target=torch.profilers._enable_profiler)
        program.start()
        assert began.wait(60)
        host.end(waits=False)
        assert program.is_alive() and host.lines()
        over.set()
        program.join(60)


@pins
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("no CUPTI"), "not recorded: it failed: no CUPTI."),
        (UsageError("one is active"), "not recorded: the program begins a torch.profiler"),
    ],
)
def test_a_profiler_that_does_not_begin_stops_no_program(
    error: Exception, said: str, torch: Torch
) -> None:
    host, torch.fails = ProcessHost(60), error
    with host.stepping_in():
        torch.queue[0]()
    assert said in host.lines()[0]


@pins
@pytest.mark.parametrize("began", [True, False])
def test_a_forked_child_begins_anew_unless_cupti_is_in_it(began: bool, torch: Torch) -> None:
    host = ProcessHost(60)
    with host.stepping_in():
        if began:
            torch.queue[0]()
        host.forked()
        torch.queue[0]()
        assert torch.did == ["begin"]
        assert [("forked" in each) for each in host.lines()] == [True] * began
    host.end(waits=True)
    assert torch.did == ["begin"] + ["halt"] * (not began), "its session never opened"


@pytest.mark.parametrize(("package", "feature", "name"), named(foreign.TORCH, foreign.HOST))
def test_without_one_of_its_names_it_is_off(
    package: Foreign, feature: Feature, name: Private
) -> None:

    host = ProcessHost(60)
    with renamed(package, name), told_once(package, feature, name), host.stepping_in():
        host.at_launch()
    assert "this version of torch lacks names" in host.lines()[0]


@pytest.mark.parametrize(("package", "feature", "name"), named(foreign.TORCH, foreign.MARKS))
def test_without_its_name_launches_alone_are_not_marked(
    package: Foreign, feature: Feature, name: Private, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(torch_profiler.launch_marks, "begin", begun.append)
    with renamed(package, name), told_once(package, feature, name):
        torch_profiler.HostRecording().stop()
    assert begun == []
    torch_profiler.HostRecording().stop()
    assert len(begun) == 1


@pytest.mark.parametrize(("package", "feature", "name"), named(foreign.TORCH, foreign.RANGES))
def test_without_its_names_nvtx_ranges_alone_are_off(
    package: Foreign, feature: Feature, name: Private
) -> None:
    import torch

    library = torch.cuda.nvtx._nvtx  # type: ignore[attr-defined]
    lost = renamed(package, name), told_once(package, feature, name)
    with lost[0], lost[1], ProcessHost(60).stepping_in():
        assert torch.cuda.nvtx._nvtx is library  # type: ignore[attr-defined]
    with ProcessHost(60).stepping_in():
        assert torch.cuda.nvtx._nvtx is not library  # type: ignore[attr-defined]
    assert torch.cuda.nvtx._nvtx is library  # type: ignore[attr-defined]
