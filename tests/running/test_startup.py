"""What ikp leaves in a program that ``ikp run`` starts, and when it begins there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.backends.triton.unedited.everything import Everything, stepping_in
from ikp.running.recording import Recording
from ikp.running.startup import sitecustomize
from ikp.running.startup.sitecustomize import AWAITED, Wait
from ikp.signals import allowed
from ikp.unedited.plan import plan


def test_all_that_is_stepped_into_is_imported_after_what_is_awaited() -> None:
    with stepping_in(Everything(plan(), lambda: None)):
        names = list(sys.meta_path[0].steps)
    parents = tuple(f"{each}." for each in AWAITED)
    assert [name for name in names if not name.startswith(parents) and name not in AWAITED] == []


@pytest.mark.parametrize("name", AWAITED)
def test_recording_begins_once_at_the_first_awaited_import(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    fake = SimpleNamespace(begin=lambda *args, **facts: begun.append((*args, facts)))
    monkeypatch.setattr(sitecustomize, "_recording", lambda: fake)
    wait = Wait('{"force": true}\n/a\nb/x.pftrace')
    wait.find_spec("tritonish")
    wait.find_spec("numpy", None)
    assert begun == []
    for each in (name, *AWAITED):
        wait.find_spec(each)
    assert begun == [('{"force": true}', "/a\nb/x.pftrace", {"forked": False, "family": None})]


ENTERED = """
import sys
(wait,) = (each for each in sys.meta_path if type(each).__name__ == "Wait")
wait.find_spec("torch")
launcher = wait.recording.launcher
early = {each.partition(".")[0] for each in sys.modules} & {"isal", "perfetto", "google"}
late = "ikp.exporters.perfetto._writer", "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
late = [each in sys.modules for each in late]
count = sum(each.partition(".")[0] == "ikp" for each in sys.modules)
if sys.argv[1:]:
    sys.path[:] = [each for each in sys.path if "-packages" not in each]
    assert launcher.session() is launcher.session() is wait.recording.session
    late = "ikp.exporters.perfetto._writer" in sys.modules
wait.end()
print(sorted(early), late, "ikp.core.decoding.decode" in sys.modules, count)
"""


@pytest.mark.any_pins  # the oldest packages import what is awaited before the program does
def test_a_program_that_launches_nothing_has_little_imported(tmp_path: Path) -> None:
    said = _entered(tmp_path)
    *rest, count = said.split()
    assert " ".join(rest) == "['google', 'isal', 'perfetto'] [False, False] False"
    assert int(count) <= 172  # some 25 more with what decodes and what writes


@pytest.mark.any_pins
def test_the_first_launch_imports_what_writes_wherever_modules_are_looked_for(
    tmp_path: Path,
) -> None:
    assert _entered(tmp_path, "launch").startswith("['google', 'isal', 'perfetto'] True False ")


def _entered(folder: Path, *words: str) -> str:
    (folder / "x.py").write_text(ENTERED)
    command = [sys.executable, "-m", "ikp", "run", "--level", "machine", "x.py", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


class Full:
    """The stderr of a program whose disk is full."""

    def write(self, text: str) -> None:
        raise OSError(28, text)


def test_what_ikp_says_never_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = (tmp_path / "x").open("w")
    closed.close()
    for stream in (None, Full(), closed):
        monkeypatch.setattr(sys, "__stderr__", stream)
        sitecustomize.say("text")


def test_no_handler_of_the_program_runs_while_the_trace_is_written() -> None:
    """Under python the process would be over by then; a time limit would lose the trace."""

    def over(*_: object) -> None:
        raise TimeoutError("the program's own limit")

    class Session:
        export, written = True, False

        def __exit__(self, *_: object) -> None:
            with allowed():
                signal.raise_signal(signal.SIGALRM)
            self.written = True

    session: Any = Session()
    recording = Recording(Any, SimpleNamespace(recorded={"k": 1}), session=session)  # type: ignore[arg-type]
    before = signal.signal(signal.SIGALRM, over)
    try:
        recording._close(session, None)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert session.written


def test_a_child_without_a_trace_writes_none_as_it_calls_exit_of_c() -> None:
    """Its parent's would be overwritten."""
    wrote: list[str] = []
    launcher: Any = SimpleNamespace(exits=lambda: wrote.append("the parent's"))
    Recording(Any, launcher).forked()  # type: ignore[arg-type]
    launcher.exits()
    assert not wrote
