"""Kernels that ran plain between windows are patched, by another process, when one opens."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, cast

import pytest

from ikp.backends import ahead
from ikp.backends.ahead import MOST, PatchesAhead
from ikp.backends.patch_input import PatchInput
from ikp.backends.patched import wanted
from ikp.errors import PatchError
from ikp.running._windows import importing
from ikp.running.recording import Recording
from ikp.unedited.plan import plan
from tests.backends.driver.driving import ROOT, fake_driver
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins


def windowed(folder: Path, **env: str) -> dict:
    """Return what the program printed that launches kernels between windows, and in one."""
    fake_driver(folder)
    image = folder / "kernel.cubin"
    image.write_bytes(code("matmul").compiled.asm["cubin"])
    program = "tests.backends.triton.unedited.windowing"
    ran = subprocess.run(
        [sys.executable, "-m", program, str(image), "matmul"],
        cwd=ROOT,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.returncode, ran.stderr
    made: dict = json.loads(ran.stdout)
    return made


@pytest.mark.compiled
def test_what_a_window_asks_for_is_patched_before_it_opens(tmp_path: Path) -> None:
    """Of a Triton kernel and one of the driver's, with blocks that all record, or a sample."""
    said = windowed(tmp_path)
    assert said["asked"] == said["ahead"] and len(said["ahead"]) == 4
    assert said["patched"] == [] and said["failed"] == {}
    assert sum(said["recorded"].values()) == 4


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels patched without a wait for others."""
    monkeypatch.setattr(ahead, "QUIET_S", 0.0)


def names(noted: PatchesAhead) -> list[str]:
    """Return the names of the kernels that a process is sent next."""
    return [each.name for each in noted.take()]


def kernel(name: str) -> PatchInput:
    return PatchInput(b"sixsix", name, {"detail": "loops"})


def gone() -> PatchInput | None:
    raise PatchError("its module is gone.")


def test_each_kernel_is_sent_once_and_what_is_gone_is_left_out() -> None:
    noted = PatchesAhead()
    assert not noted.is_due
    for key, each in enumerate((lambda: kernel("a"), gone, lambda: None, lambda: kernel("b"))):
        noted.note(key, each)
        noted.note(key, each)
    assert noted.is_due
    assert names(noted) == ["a", "b"]
    noted.note(0, lambda: kernel("a"))
    assert not noted.is_due


def test_a_process_is_sent_no_more_than_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_LARGE", 10)
    noted = PatchesAhead()
    for name in "abcde":
        noted.note(name, lambda name=name: kernel(name))
    sent = []
    while noted.is_due:
        sent.append(names(noted))
    assert sent == [["a", "b"], ["c", "d"], ["e"]]


def test_the_number_of_kernels_is_bounded() -> None:
    noted, sent = PatchesAhead(), list[str]()
    for number in range(2 * MOST):
        noted.note(number, lambda number=number: kernel(str(number)))
        if number % 100 == 0:
            sent += names(noted)
    assert len(sent + names(noted)) == MOST


def test_nothing_is_patched_ahead_where_no_machine_code_is_to_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted = PatchesAhead()
    noted.note(0, lambda: kernel("a"))
    monkeypatch.setenv("IKP_PATCH", "0")
    assert noted.take() == [] and not noted.is_due


def test_no_fork_and_no_capture_waits_while_the_process_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for ``importing``, which the thread of windows holds as it imports.

    And the process imports nothing of the program's: its folder may shadow an installed package.
    """
    held: list[tuple[str, bool]] = []
    tmp_path.joinpath("isal.py").write_text("raise SystemExit('the program has run again')")
    monkeypatch.syspath_prepend(str(tmp_path))

    class Ahead:
        is_due = True

        def take(self) -> list[str]:
            held.append(("take", importing.locked()))
            return ["kernel"]

        def send(self, kernels: list[str], paths: list[str]) -> None:
            held.append((kernels[0], importing.locked()))
            assert paths and str(tmp_path) not in paths

    launcher: Any = types.SimpleNamespace(ahead=Ahead())
    Recording(cast("Any", None), launcher).patch_ahead()
    assert held == [("take", True), ("kernel", False)]


def test_a_process_that_dies_does_not_end_the_program() -> None:
    """Nor where the program has SIGPIPE end it, as many do that write to pipes."""
    program = (
        "import signal; from ikp.backends import ahead; "
        "from ikp.backends.patch_input import PatchInput; "
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL); "
        "ahead._CODE = 'import os; os._exit(1)'; "
        "ahead.PatchesAhead.send([PatchInput(bytes(1 << 20), 'k', {})], []); print('goes on')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "goes on\n"), ran.stderr


@pytest.mark.skipif("not __import__('importlib.util').util.find_spec('triton')")
def test_between_windows_a_kernel_that_was_tried_out_is_asked_about_again() -> None:
    """A trial is not noted, for it may be of a configuration that is not chosen."""
    from ikp.backends.triton.unedited import everything

    class Autotuner:
        def _bench(self) -> int:
            return wanted().tries

    launcher = everything.Everything(plan("kernel"), lambda: None, idle=True)
    woken: list[bool] = []
    launcher.wakers.append(lambda: woken.append(launcher.idle))
    module: Any = types.SimpleNamespace(Autotuner=Autotuner)
    undo = everything._trials(module, launcher)
    assert Autotuner()._bench() == 1 and woken == [True] and wanted().tries == 0
    launcher.idle = False
    assert Autotuner()._bench() == 1 and woken == [True]
    undo()
    assert Autotuner()._bench() == 0
