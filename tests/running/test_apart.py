"""A window's trace that another process decodes and writes: as this one would have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ikp
from ikp.inspection import facts_of_trace
from ikp.running import apart
from ikp.running.process_parts import Recorded
from ikp.running.recording import Recording
from ikp.session.copies import Copies
from tests.host import Host, work
from tests.repo.tree import ROOT

pytest.importorskip("torch")
pytestmark = pytest.mark.any_pins


NAMES = {1: "a", 2: "b", 3: "c"}


@pytest.fixture(autouse=True)
def _no_code_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test before has left code loaded, with which a session would end in this process."""
    monkeypatch.setattr(facts_of_trace, "any_loaded", lambda: False)


def copies_of(host: Host, path: Path, launches: int = 3) -> tuple[Copies, str, bool]:
    """Return what a session recorded that another process is to write."""
    prof = ikp.profile(path, force=True)
    with prof:
        for number in range(launches):
            host.run(prof.buffer(f"k{number}", size=4096, regions=NAMES), work(5 + number))
        found = prof.end_with_copies()
        assert prof.end_with_copies() is None, "it has ended"
    assert found is not None and not path.exists()
    return found


def content(path: Path) -> Any:
    trace = ikp.load(path)
    names = [trace.regions[each].name for each in trace.events.region.tolist()]
    times = trace.events.start_ns.tolist(), trace.events.end_ns.tolist()
    return [each.label for each in trace.launches], names, times


def test_another_process_writes_what_this_one_would(host: Host, tmp_path: Path) -> None:
    copies, target, force = copies_of(host, tmp_path / "x.pftrace")
    assert apart.write_apart(copies, target, force=force)() == apart.write(
        copies, str(tmp_path / "y.pftrace"), force=force
    )
    assert content(tmp_path / "x.pftrace") == content(tmp_path / "y.pftrace")
    with ikp.profile(tmp_path / "z.pftrace") as prof:
        for number in range(3):
            host.run(prof.buffer(f"k{number}", size=4096, regions=NAMES), work(5 + number))
    assert content(tmp_path / "x.pftrace") == content(tmp_path / "z.pftrace")


def test_where_no_process_starts_the_trace_is_written_here(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, wrong in enumerate(("/nothing/there", "/bin/true")):
        path = tmp_path / f"{number}.pftrace"
        copies, target, force = copies_of(host, path)
        monkeypatch.setattr(sys, "executable", wrong)
        recorded, lines = apart.write_apart(copies, target, force=force)()
        assert recorded is not None and recorded.records == 21 and not lines
        assert len(ikp.load(path).launches) == 3


def test_a_file_that_is_there_is_not_replaced_and_a_line_says_so(
    host: Host, tmp_path: Path
) -> None:
    copies, target, _ = copies_of(host, tmp_path / "x.pftrace")
    (tmp_path / "x.pftrace").write_text("mine")
    recorded, lines = apart.write_apart(copies, target, force=False)()
    assert recorded is None and "the trace is lost" in lines[-1], lines
    assert (tmp_path / "x.pftrace").read_text() == "mine"


def wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.1)


KILLED = """
import pickle, sys
from ikp.running import apart
copies, target, force = pickle.load(open(sys.argv[1], "rb"))
wait = f"open({sys.argv[2]!r}, 'w').close()\\nimport time; time.sleep(2)\\n"
apart._CODE = apart._CODE.replace("os.setsid()\\n", "os.setsid()\\n" + wait)
apart.write_apart(copies, target, force=force)()
"""


def test_the_trace_of_a_process_that_is_killed_meanwhile_is_written(
    host: Host, tmp_path: Path
) -> None:
    """With all its children, as a service manager and servers do it."""
    import pickle

    path = tmp_path / "x.pftrace"
    (tmp_path / "copies").write_bytes(pickle.dumps(copies_of(host, path)))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "copies"), str(tmp_path / "there")]
    process = subprocess.Popen(command, env=env, process_group=0)
    wait_for(tmp_path / "there")
    time.sleep(0.5)  # in which the pipe is filled
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(path)
    assert len(ikp.load(path).launches) == 3


def test_a_window_whose_records_can_not_be_passed_on_is_written_here(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "x.pftrace"
    prof: Any = ikp.profile(path).start()
    host.run(prof.buffer("k", size=4096, regions=NAMES), work(5))

    def fails() -> None:
        raise ValueError("no copies")

    prof.end_with_copies = fails
    recording: Any = SimpleNamespace(launcher=SimpleNamespace(recorded={"k": 1}), path=str(path))
    recording._close = lambda session, _: [session.stop()][1:]
    recorded, lines = Recording._written(recording, prof, 1)()
    assert recorded is not None and recorded.records == 6
    assert lines == ["not written by another process: no copies."]
    assert len(ikp.load(path).launches) == 1


def test_a_windows_counts_are_those_at_its_end(tmp_path: Path) -> None:
    """The launcher counts the next one while its trace is written."""
    launcher = SimpleNamespace(
        recorded=Counter(k=3), plain=Counter({("k", "later"): 2}), aside=set()
    )
    path = str(tmp_path / "x.pftrace")
    recording: Any = SimpleNamespace(
        session=object(), launcher=launcher, path=path, family=None, parts=[], wrote=0
    )
    recording._written = lambda *_: lambda: (Recorded(records=7), ["a line"])
    recording._window_ended = partial(Recording._window_ended, recording)
    end = Recording.close_window(recording, 1)
    for each in (launcher.recorded, launcher.plain):
        each.clear()
    launcher.recorded["other"], recording.path, recording.session = 9, "y.pftrace", object()
    wrote = f"3 of 5 launches recorded, of 1 kernel; 2 later. Wrote {path}"
    assert end() == ["a line", wrote]
    (part,) = recording.parts
    assert (part.recorded, part.trace, part.records) == ({"k": 3}, path, 7)
