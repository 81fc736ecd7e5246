"""A program under ``ikp run`` has no children but its own, whatever ikp starts meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ikp import children, tool_starter
from tests.repo.tree import ROOT
from tests.starters import starter
from tests.test_children import alive

pytestmark = pytest.mark.any_pins

PROGRAM = textwrap.dedent(
    """
    import os, signal, sys, threading, time
    ends, ran = [], []
    signal.signal(signal.SIGCHLD, lambda *_: ends.append("end"))
    import torch  # recording begins
    sys.path.insert(0, os.environ["OF_IKP"])
    from ikp import children

    def tools():
        for _ in range(4):
            assert children.run([sys.executable, "-S", "-c", "pass"], 30).code == 0
            leaves = "import os, time\\nif not os.fork(): time.sleep(0.2)"
            assert children.leave_behind([sys.executable, "-S", "-c", leaves], {}, os.environ) == 0
        ran.append("tools")

    thread = threading.Thread(target=tools)
    thread.start()
    try:
        os.wait()
        print("a child that is not its own")
    except ChildProcessError:
        print("no child")
    own = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 1; exit 3"], os.environ)
    pid, status = os.wait()
    print(pid == own, os.waitstatus_to_exitcode(status))
    thread.join()
    time.sleep(0.3)
    print(ran, ends)
    tasks = [f"/proc/self/task/{each}/children" for each in os.listdir("/proc/self/task")]
    print(sum(len(open(each).read().split()) for each in tasks))
    """
)


OWN = ["no child", "True 3", "['tools'] ['end']"]
"""What ``wait`` and handlers of signals show it."""


def test_a_program_that_waits_for_any_child_gets_its_own(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.stdout.splitlines() == [*OWN, "0"], done.stderr


def run(folder: Path, *before: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "torch.py").write_text("")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "OF_IKP": str(ROOT)}
    command = [sys.executable, str(ROOT / "tests" / "cli" / "command.py"), "run"]
    return subprocess.run(
        [*before, *command, "--level", "machine", "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_a_program_that_is_the_first_process_of_a_container_has_its_own(tmp_path: Path) -> None:
    """Who loses the parent becomes its child: one is, and is hidden from ``wait``."""
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    try:
        subprocess.run([*apart, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system gives no namespace of processes")
    done = run(tmp_path, *apart)
    assert done.stdout.splitlines() == [*OWN, "1"], done.stderr


@pytest.fixture
def asked() -> Iterator[str]:
    with starter() as name:
        tool_starter.use(name)
        yield name
        tool_starter.use("")


def parent_of_a_tool() -> int:
    return int(children.run([sys.executable, "-c", "import os; print(os.getppid())"], 30).out)


def test_it_ends_with_the_program() -> None:
    with starter() as name:
        tool_starter.use(name)
        pid = parent_of_a_tool()
    try:
        until = time.monotonic() + 10
        while alive(pid) and time.monotonic() < until:
            time.sleep(0.02)
        assert not alive(pid)
        assert parent_of_a_tool() == os.getpid(), "it starts its tools itself then"
    finally:
        tool_starter.use("")


@pytest.mark.usefixtures("asked")
def test_a_process_with_another_root_starts_its_tools_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parent_of_a_tool() != os.getpid()
    monkeypatch.setattr(tool_starter, "_place", lambda: [0, 0, ""])
    assert parent_of_a_tool() == os.getpid()


@pytest.mark.usefixtures("asked")
def test_a_forked_process_has_none_either() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, str(parent_of_a_tool() == os.getpid()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 9) == b"False"
    os.close(read)
    os.close(write)


@pytest.mark.usefixtures("asked")
def test_an_error_is_that_of_its_own_child() -> None:
    with pytest.raises(PermissionError):
        children.leave_behind([__file__], {}, dict(os.environ))
    assert children.run(["sh", "-c", "kill -TERM $$"], 30).code == -signal.SIGTERM


@pytest.mark.usefixtures("asked")
def test_many_at_once_have_their_own_ends_and_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are given up: they are killed, and no other is."""
    monkeypatch.setattr(children, "_CLOCK", 10)

    def one(number: int) -> bool:
        if number % 4 == 3:
            with pytest.raises(children.TooLongError):
                children.run(["sleep", "99"], 0.05)
            return True
        done = children.run(["sh", "-c", f"sleep 0.{number % 3}; echo {number}; exit {number}"], 30)
        return (done.code, done.out) == (number, f"{number}\n")

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(one, range(48)))
    assert parent_of_a_tool() != os.getpid(), "it is there"
