"""Sessions with torch.profiler around them: both in one file, or ikp's alone with the reason."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import ikp
from ikp.core.trace import Trace
from ikp.errors import IkpWarning, UsageError
from ikp.exporters.perfetto import PerfettoExporter
from ikp.profiling.torch_profiler import HostRecording
from ikp.session import recorded_segments
from tests.kernels.relay import relay
from tests.trace_processor.query import columns
from tests.trace_processor.server import open_trace

torch = pytest.importorskip("torch")


pytestmark = pytest.mark.interp


def recorded(path: Path) -> Trace:
    """Return the trace of a session in which the host did something around a launch."""
    tiles, out = (torch.zeros(3, dtype=torch.int32) for _ in range(2))
    with ikp.profile(path, host=True) as prof:
        with torch.profiler.record_function("step"):
            torch.ones(8).sum()
            relay[(2,)](tiles, out, 3, prof.buffer("relay"))
        with torch.profiler.record_function("after"):
            pass
    return prof.trace


@pytest.mark.tp
def test_what_the_host_did_is_beside_the_launches(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    before = time.time_ns()
    made = recorded(path)
    after = time.time_ns()
    assert ikp.load(path).launches == made.launches
    assert "torch.profiler: placed by the host's clock" in str(ikp.load(path).stats())
    assert made.launches[0].number, "marked for torch.profiler"
    (host,) = PerfettoExporter().read_beside(path)
    assert not any("ikp launch" in each.name for each in host.slices)
    with open_trace(path) as processor:
        found = columns(
            processor, "select name, ts, ts + dur as end from slice where category not null"
        )
    spans = dict(
        zip(found["name"].tolist(), zip(found["ts"], found["end"], strict=True), strict=True)
    )
    assert {"step", "after", "aten::sum"} <= spans.keys()
    begin, end = spans["step"]
    assert begin <= made.slots.start_ns.min() <= made.slots.end_ns.max() <= end
    assert before <= begin <= spans["aten::sum"][0] < end <= spans["after"][0] <= after


def test_without_a_host_launches_are_not_marked(tmp_path: Path) -> None:
    recorded(tmp_path / "x.pftrace")
    tiles, out = (torch.zeros(3, dtype=torch.int32) for _ in range(2))
    with ikp.profile() as prof:
        relay[(2,)](tiles, out, 3, prof.buffer("relay"))
    assert [each.number for each in prof.trace.launches] == [0]


def test_a_session_of_steps_records_no_host(tmp_path: Path) -> None:
    steps = ikp.schedule(wait=0, warmup=0, active=1)
    with pytest.raises(UsageError, match=r"host=True.*steps="):
        ikp.profile(tmp_path / "x.pftrace", host=True, steps=steps)


def test_an_active_profiler_is_left_alone(tmp_path: Path) -> None:
    with torch.profiler.profile(acc_events=True) as active:
        with pytest.raises(UsageError, match="one is active already"):
            recorded(tmp_path / "x.pftrace")
        torch.ones(8).sum()
    assert any(each.key == "aten::sum" for each in active.key_averages())
    assert not list(tmp_path.iterdir())
    assert recorded(tmp_path / "x.pftrace").launches, "neither was left open"


def test_a_profiler_that_fails_takes_nothing_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = HostRecording.stop

    def broken(recording: HostRecording, *, hasty: bool) -> None:
        assert not hasty
        stop(recording)
        raise RuntimeError("gone")

    monkeypatch.setattr(HostRecording, "stop", broken)
    with pytest.warns(IkpWarning, match="what torch.profiler saw of the host is lost: gone"):
        made = recorded(tmp_path / "x.pftrace")
    assert ikp.load(tmp_path / "x.pftrace").launches == made.launches


FAILED = """
import weakref
from types import SimpleNamespace
import torch
from ikp.profiling.torch_profiler import HostRecording
def fail(_):
    raise RuntimeError("CUDA error: device-side assert triggered")
recording = HostRecording(everywhere=True)
there = lambda: True
recording._cuda = SimpleNamespace(is_available=there, is_initialized=there, synchronize=fail)
def halt(tensor):
    try:
        recording.halt()
    except RuntimeError as error:
        print(error)
    return weakref.ref(tensor)
print([halt(torch.zeros(1))() for _ in range(2)])
"""


def test_after_a_kernel_has_failed_no_profiler_is_left_active() -> None:
    """At the process's end it crashed: the exit code was SIGSEGV's, not the program's.

    The error keeps no tensor of the functions that it passed.
    """
    command = [sys.executable, "-c", FAILED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = ["CUDA error: device-side assert triggered"] * 2
    assert done.stdout.splitlines() == [*said, "[None, None]"]


PRINTS = """
import ctypes, os, subprocess, sys
from ikp.profiling.torch_profiler import _silent
libc = ctypes.CDLL(None)
def printed(text):
    libc.fputs(text, ctypes.c_void_p.in_dll(libc, "stderr"))
with _silent():
    printed(b"the program's\\n")
    printed(b"ERROR: External init callback must run in same thread as registerClient (1 != 2)\\n")
    print("Python's", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-c", "import os; os.write(2, b'a child\\\\n')"])
printed(b"ERROR: External\\n")
"""


def test_one_line_of_kinetos_is_left_out_and_no_other() -> None:
    command = [sys.executable, "-c", PRINTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = ["Python's", "a child", "the program's", "ERROR: External"]
    assert done.stderr.splitlines() == said


def test_a_kernel_that_does_not_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = HostRecording.stop
    stopped: list[HostRecording] = []
    monkeypatch.setattr(recorded_segments, "ended_or_failed", lambda *_: (False, {}))
    monkeypatch.setattr(HostRecording, "stop", stopped.append)
    prof = ikp.profile(tmp_path / "x.pftrace", host=True).start()
    prof.patience_s = 0.1  # as a signal that ends the process sets it
    profiler = prof._recording.beside
    tiles, out = (torch.zeros(3, dtype=torch.int32) for _ in range(2))
    relay[(2,)](tiles, out, 3, prof.buffer("relay"))
    with pytest.warns(IkpWarning) as caught:
        prof.stop()
    assert any("the host is lost: a kernel had not ended." in str(one.message) for one in caught)
    stop(profiler)
    assert stopped == [] and ikp.load(tmp_path / "x.pftrace").launches


def test_after_a_signal_a_long_recording_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ikp.profiling.torch_profiler.HASTY_BYTES", 9)
    prof = ikp.profile(tmp_path / "x.pftrace", host=True).start()
    prof.patience_s = 5
    tiles, out = (torch.zeros(3, dtype=torch.int32) for _ in range(2))
    relay[(2,)](tiles, out, 3, prof.buffer("relay"))
    with pytest.warns(IkpWarning, match="take too long to write after a signal"):
        prof.stop()
    assert ikp.load(tmp_path / "x.pftrace").launches


def test_a_host_that_does_not_fit_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misfit(*_: object) -> None:
        raise UsageError("60 of 60 launches are outside")

    monkeypatch.setattr("ikp.host_traces.placing.place", misfit)
    with pytest.warns(IkpWarning, match="lacks what torch.profiler saw of the host: 60 of 60"):
        made = recorded(tmp_path / "x.pftrace")
    assert ikp.load(tmp_path / "x.pftrace").launches == made.launches


@pytest.mark.parametrize("path", [None, "x.json"])
def test_it_needs_a_file_that_holds_both(path: str | None) -> None:
    with pytest.raises(UsageError, match="give the path"):
        ikp.profile(path, host=True)
