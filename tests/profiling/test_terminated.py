"""SIGTERM and SIGHUP: the trace is written, and the program ends as it would have without ikp."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.session import segment_sources, termination
from tests.processes import slim_environment

pytest.importorskip("torch")


PROGRAM = Path(__file__).parent / "terminated.py"
ARMED = "ready True/True True/True\n"


@contextmanager
def started(mode: str, path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *options, "-m", "tests.profiling.terminated", mode, str(path)]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(
        command, text=True, env=slim_environment(path.parent), **pipes
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], word: str) -> str:
    """Return what a program says until a line that begins with a word; at most so much."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith(word):
            return said
    _, told = process.communicate()
    raise AssertionError(f"{said}\n{told}")


def over(process: subprocess.Popen[str]) -> int:
    return process.wait(60)


@pytest.mark.any_pins
@pytest.mark.parametrize("mode", ["plain", "stuck", "twice"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_trace_is_written_and_the_signal_ends_the_program(
    mode: str, number: int, tmp_path: Path
) -> None:
    path = tmp_path / "x.pftrace"
    with started(mode, path) as process:
        assert until(process, "ready").endswith(ARMED)
        process.send_signal(number)
        assert over(process) == -number
    assert [each.label for each in ikp.load(path).launches] == ["k"]


@pytest.mark.any_pins
def test_a_group_and_a_parent_may_both_send_it(tmp_path: Path) -> None:
    """A second signal, while the trace is written, is no other wish."""
    path = tmp_path / "x.pftrace"
    with started("slow", path) as process:
        until(process, "ready")
        process.send_signal(signal.SIGTERM)
        until(process, "writing")
        process.send_signal(signal.SIGTERM)
        assert over(process) == -signal.SIGTERM
    assert [each.label for each in ikp.load(path).launches] == ["k"]


@pytest.mark.parametrize("mode", ["compiled", "compiles"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_compilers_handler_has_its_turn_behind(mode: str, number: int, tmp_path: Path) -> None:
    """LLVM has one once Triton has compiled a kernel, before the session or while it is open."""
    pytest.importorskip("triton")
    path = tmp_path / "x.pftrace"
    with started(mode, path) as process:
        assert until(process, "ready").endswith(f"LLVM has them\n{ARMED}")
        process.send_signal(number)
        assert over(process) == -number
    assert [each.label for each in ikp.load(path).launches] == ["k"]


@pytest.mark.any_pins
def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    with started("ignored", path) as process:
        assert until(process, "ready").endswith("ready True/True False/False\n")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None
        process.terminate()
        assert over(process) == -signal.SIGTERM
    assert path.exists()


@pytest.mark.any_pins
def test_a_handler_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    with started("before", path) as process:
        assert until(process, "ready").endswith("ready False/True True/True\n")
        process.terminate()
        until(process, "mine")
        assert process.poll() is None and not path.exists()
        assert process.stdin is not None
        process.stdin.close()
        until(process, "over")
        assert over(process) == 0
    assert path.exists()


@pytest.mark.any_pins
def test_a_handler_that_comes_later_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    with started("after", path) as process:
        assert until(process, "ready").endswith("ready False/True True/True\n")
        process.terminate()
        assert over(process) == 5
    assert path.exists()


@pytest.mark.any_pins
def test_a_child_has_the_plain_signals_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    with started("child", path, "-W", "error") as process:
        said = until(process, "ready")
        assert f"{-signal.SIGTERM} False True/True True/True" in said
        assert said.endswith(ARMED), "the parent goes on"
        process.terminate()
        assert over(process) == -signal.SIGTERM
    assert path.exists()


@pytest.mark.any_pins
def test_a_program_that_is_started_has_the_plain_signals(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    with started("popen", path) as process:
        said = until(process, "ready")
        assert "True" in said and f"{-signal.SIGTERM} False" in said


@pytest.mark.any_pins
def test_behind_a_session_the_signals_are_plain_again(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    with started("over", path) as process:
        assert until(process, "over").endswith(f"{ARMED}over True/False True/False\n")
        process.terminate()
        assert over(process) == -signal.SIGTERM


@pytest.mark.any_pins
def test_a_program_that_closes_all_files_ends_as_it_would(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    with started("closed", path) as process:
        said = until(process, "over")
        assert said.startswith("599\nready True/False True/False\n"), "no number is taken"
        process.terminate()
        assert over(process) == -signal.SIGTERM
    assert path.exists()


def test_files_that_have_the_pipes_numbers_are_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system polls what has a number now, and that can always be read."""
    killed, ended = [], []
    watch = termination._Watch()
    monkeypatch.setattr(termination.os, "kill", lambda *which: killed.append(which))
    remove = watch.add(lambda: ended.append("ended"))
    assert watch._pipes.keys() == set(termination.SIGNALS)
    numbers = [each for pipe in watch._pipes.values() for each in (pipe.read, pipe.write)]
    with Path(os.devnull).open("rb") as null:
        for each in numbers:
            os.dup2(null.fileno(), each)
    assert watch._over.acquire(timeout=10), "the thread has ended"
    watch._over.release()
    remove()
    for each in numbers:
        os.close(each)
    assert not killed and not ended


def test_without_a_path_nothing_is_watched() -> None:
    with ikp.profile():
        assert not termination._watch._ends


def test_a_failing_end_does_not_keep_the_signal_from_its_effect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed, ended = threading.Event(), []
    watch = termination._Watch()
    monkeypatch.setattr(termination.os, "kill", lambda *_: killed.set())

    def failing() -> None:
        ended.append("failing")
        raise SystemExit("no room")

    removals = [watch.add(lambda: ended.append("first")), watch.add(failing)]
    assert watch._pipes.keys() == set(termination.SIGNALS), "else the next line ends the tests"
    signal.raise_signal(signal.SIGTERM)
    assert killed.wait(10)
    assert watch._effective.wait(10)
    assert ended == ["failing", "first"]
    for each in removals:
        each()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_kernel_that_does_not_end_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    monkeypatch.setattr(segment_sources, "wait", lambda _: done.wait(60))
    began = time.perf_counter()
    assert not segment_sources.wait_for([], 0.2)
    assert 0.2 <= time.perf_counter() - began < 30
    done.set()
    assert segment_sources.wait_for([], 30)

    def failed(_: object) -> None:
        raise RuntimeError("an illegal memory access")

    monkeypatch.setattr(segment_sources, "wait", failed)
    with pytest.raises(RuntimeError, match="illegal"):
        segment_sources.wait_for([], 30)
