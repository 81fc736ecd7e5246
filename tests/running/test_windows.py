"""Programs that are recorded in windows: opened from another terminal, or by a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ikp
from ikp.cli.main import cli
from ikp.running import _following
from ikp.running._windows import Windows
from ikp.running.process_parts import Part
from ikp.running.startup.ikp_children import Family
from tests.processes import use_slim_torch
from tests.repo.tree import ROOT
from tests.running.test_children import COMMAND, KERNEL

pytestmark = [
    pytest.mark.any_pins,
    pytest.mark.skipif("not __import__('importlib.util').util.find_spec('triton')"),
]
SERVES = """\
import os, sys, threading, kern, torch
over = threading.Event()
def serve():
    while not over.wait(0.02):
        kern.work(1)
kern.work(20)
child = os.fork() if sys.argv[1:] else 1
threading.Thread(target=serve).start()
if child == 0:
    import time
    while os.getppid() != 1 and not os.path.exists("over"): time.sleep(0.05)
    over.set(); time.sleep(0.1); os._exit(0)
print("ready", flush=True)
sys.stdin.read()
over.set()
if sys.argv[1:]:
    open("over", "w").close(); os.wait()
"""


def served(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start the program, and return it once it launches kernels."""
    (folder / "kern.py").write_text(KERNEL)
    (folder / "prog.py").write_text(SERVES)
    use_slim_torch(folder)
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(folder)}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, COMMAND, "run", *words]
    process = subprocess.Popen(command, text=True, cwd=folder, env=env, **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def until(folder: Path, count: int) -> list[str]:
    """Wait for so many traces, and return their names."""
    for _ in range(600):
        names = sorted(each.name for each in folder.glob("*.pftrace"))
        if len(names) >= count:
            return names
        time.sleep(0.1)
    raise AssertionError(f"{names} after a minute")


def test_attach_records_all_processes_for_a_while(tmp_path: Path) -> None:
    process = served(tmp_path, "--idle", "--launch", "2:5", "prog.py", "fork")
    attach = ["attach", str(process.pid), "--for", "4"]
    for window in (1, 2):
        done = CliRunner().invoke(cli, attach)
        assert done.exit_code == 0, done.output
        names = until(tmp_path, 2 * window)
    assert names == [
        *(f"ikp-prog.child1.window{n}.pftrace" for n in (1, 2)),
        *(f"ikp-prog.window{n}.pftrace" for n in (1, 2)),
    ]
    _, said = process.communicate()
    assert process.returncode == 0
    assert said.count("window 1: 3 of ") == said.count("window 2: 3 of ") == 2, said
    for name in names:
        assert [each.label for each in ikp.load(tmp_path / name).launches] == ["add"] * 3


def test_a_window_is_open_while_a_file_is_there_and_ends_with_the_program(tmp_path: Path) -> None:
    process = served(tmp_path, "--while", "go", "--out", "x.{step}.pftrace", "prog.py")
    (tmp_path / "go").touch()
    time.sleep(3)
    _, said = process.communicate()
    assert [each.name for each in tmp_path.glob("*.pftrace")] == ["x.1.pftrace"], said
    assert re.search("add: [1-8] of ", said), said  # as many as a busy host makes meanwhile


def test_a_program_opens_windows_by_calls_and_each_returns_when_it_is_done() -> None:
    """As cudaProfilerStart and cudaProfilerStop do; a file may open one beside."""
    done: list[str] = []

    class Recording:
        launcher: Any = types.SimpleNamespace()
        family = None

        def prepare(self) -> None:
            time.sleep(0.1)

        def open_window(self, number: int) -> None:
            time.sleep(0.1)
            done.append(f"opened {number}")

        def close_window(self, number: int) -> Any:
            time.sleep(0.1)

            def written() -> list[str]:
                time.sleep(0.1)
                done.append("closed")
                return []

            return written

    windows = Windows(Recording(), None)
    windows.start()
    called = Recording.launcher.profiler
    for _ in range(2):
        called(True)
        done.append("launch")
        called(False)
    called(False)
    called(True)
    windows.stop()
    called(False)  # as the process ends, and nobody listens
    window = ["launch", "closed"]
    assert done == ["opened 1", *window, "opened 2", *window, "opened 3"]


def wait_for(done: list[str], what: str) -> None:
    """Wait until something is done, for a minute at most."""
    until = time.monotonic() + 60
    while what not in done:
        assert time.monotonic() < until, done
        time.sleep(0.01)


def test_a_window_opens_while_the_trace_of_the_one_before_is_written(tmp_path: Path) -> None:
    """A large trace takes a minute: a window that was asked for meanwhile was not recorded."""
    done, go, may_end = list[str](), tmp_path / "go", threading.Event()

    class Recording:
        launcher: Any = types.SimpleNamespace()
        family = None

        def prepare(self) -> None:
            pass

        def patch_ahead(self) -> None:
            pass

        def open_window(self, number: int) -> None:
            done.append(f"opened {number}")

        def close_window(self, number: int) -> Any:
            def written() -> list[str]:
                assert may_end.wait(60)
                done.append(f"written {number}")
                return []

            done.append(f"closed {number}")
            return written

    windows = Windows(Recording(), str(go))
    windows.start()
    for number in (1, 2):
        go.touch()
        wait_for(done, f"opened {number}")
        go.unlink()
        wait_for(done, f"closed {number}")
    assert len(done) == 4, "nothing is written yet"
    threading.Timer(0.2, may_end.set).start()
    windows.stop()
    assert sorted(done[4:]) == ["written 1", "written 2"], "a program ends behind its traces"


def test_kernels_are_patched_between_windows_alone_and_no_window_waits_for_it(
    tmp_path: Path,
) -> None:
    done, go = list[str](), tmp_path / "go"

    class Recording:
        launcher: Any = types.SimpleNamespace()
        family = None

        def prepare(self) -> None:
            pass

        def patch_ahead(self) -> None:
            done.append("patch")
            raise OSError("no process can be started")

        def open_window(self, number: int) -> None:
            done.append(f"opened {number}")

        def close_window(self, number: int) -> Any:
            done.append(f"closed {number}")
            return list[str]

    windows = Windows(Recording(), str(go))
    windows.start()
    for number in (1, 2):
        wait_for(done, "patch")
        go.touch()
        wait_for(done, f"opened {number}")
        time.sleep(0.2)
        go.unlink()
        wait_for(done, f"closed {number}")
        opened, closed = done.index(f"opened {number}"), done.index(f"closed {number}")
        assert closed == opened + 1
        del done[:]
    windows.stop()


FORKS = """\
import os, signal, sys, time, types
from ikp.running import _following
from ikp.running._windows import Windows
from ikp.running.process_parts import Part
from ikp.running.startup.ikp_children import Family
class Recording:
    launcher, family = types.SimpleNamespace(), None
    def prepare(self): import slow
Windows(Recording(), "go").start()
while "slow" not in sys.modules: time.sleep(0.01)
if (child := os.fork()) == 0:
    signal.alarm(20)
    import slow
    os._exit(slow.x)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_waits_for_imports_of_the_thread_that_looks_for_windows(tmp_path: Path) -> None:
    """Else the child waits for ever, as it imports what the thread was importing."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\nx = 7\n")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run([sys.executable, "-c", FORKS], cwd=tmp_path, env=env, check=False)
    assert done.returncode == 7


def test_attach_says_which_programs_it_can_record(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["attach", str(os.getpid())])
    assert done.exit_code == 1
    assert "was not started by `ikp run --idle`" in str(done.exception or done.output) + done.output
    none = CliRunner().invoke(cli, ["run", "--idle", "--follow", "none", "x.py"])
    assert "--idle needs --follow python or all" in none.output


def test_what_is_said_of_a_killed_process_is_what_became_of_its_windows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another process may still write them: that was called lost."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    family = Family(os.getpid(), str(tmp_path), every=False)
    for name in ("rank0", "rank1", "rank2"):
        family.put(name, f"{gone.pid}\nserve.py")
    for number in (1, 2):
        _following.window_handed_on(family, "rank0", number, f"x.window{number}.pftrace")
    _following.window_handed_on(family, "rank1", 1, "y.pftrace")
    for name in ("rank0", "rank1"):
        assert _following.window_ended(family, name, 1, Part(gone.pid, "serve.py", None))
    _following.report(family, str(tmp_path / "x.pftrace"), [])
    done, said = "what 1 window recorded was written before", capfd.readouterr().err
    for what in (
        f"it was killed; {done}, and another process writes x.window2.pftrace.",
        f"it was killed; {done}.",
        "it was killed before its trace was written.",
    ):
        assert f"ikp: process {gone.pid} (serve.py): {what}\n" in said, said
    assert len(_following.parts_of(family)) == 2
