"""What ikp leaves in a program that ``ikp run`` starts, and when it begins there."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
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
    assert begun == [('{"force": true}', "/a\nb/x.pftrace", {"forked": False})]


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
    recording = Recording(Any, SimpleNamespace(recorded={"k": 1}), session, ExitStack(), {})  # type: ignore[arg-type]
    before = signal.signal(signal.SIGALRM, over)
    try:
        recording._close(session, None)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert session.written
