"""Schedules: which steps are recorded, what becomes of each cycle, and what memory stays."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.errors import IkpError, UsageError
from ikp.profiling import _life
from ikp.profiling.steps import Phase, Schedule
from ikp.session import known_launch
from tests.host import Host, work

torch = pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
def test_the_phases_are_those_of_torchs_schedule() -> None:
    from torch.profiler import ProfilerAction
    from torch.profiler import schedule as torchs

    same = {
        ProfilerAction.NONE: Phase.WAIT,
        ProfilerAction.WARMUP: Phase.WARMUP,
        ProfilerAction.RECORD: Phase.ACTIVE,
        ProfilerAction.RECORD_AND_SAVE: Phase.ACTIVE,
    }
    for wait, warmup, active, repeat, skip in ((2, 1, 3, 2, 4), (0, 0, 1, 0, 0), (1, 2, 2, 1, 0)):
        options: dict[str, Any] = {"wait": wait, "warmup": warmup, "active": active}
        options |= {"repeat": repeat, "skip_first": skip}
        theirs, ours = torchs(**options), ikp.schedule(**options)
        for step in range(40):
            assert ours.phase(step) is same[theirs(step)]
            assert ours.ends(step) == (theirs(step) is ProfilerAction.RECORD_AND_SAVE)


@pytest.mark.parametrize(("name", "value"), [("active", 0), ("wait", -1), ("repeat", 1.5)])
def test_what_is_no_count_is_refused(name: str, value: object) -> None:
    wrong: dict[str, Any] = {"active": 1, name: value}
    with pytest.raises(UsageError, match=f"{name}=.* is no number of steps"):
        ikp.schedule(**wrong)


def run(host: Host, prof: Any, steps: int) -> list[str]:
    """Launch once in each step; return which of them had a buffer, on or off."""
    had = []
    for step in range(steps):
        buffer = prof.buffer(f"k{step}")
        had.append(
            "none" if buffer is None else "on" if prof._cycles.phase.value == "active" else "off"
        )
        if had[-1] == "on":
            host.run(buffer, work())
        del buffer  # one that is held is kept, and emptied
        prof.step()
    return had


@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_a_step_s_phase_is_worked_out_once_however_many_launches_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Outside of windows, a launch costs the look at it and no more."""
    asked: list[int] = []
    phase = Schedule.phase

    def counted(self: Schedule, step: int) -> Phase:
        asked.append(step)
        return phase(self, step)

    monkeypatch.setattr(Schedule, "phase", counted)
    steps = ikp.schedule(wait=8, warmup=1, active=1)
    with ikp.profile(tmp_path / "x.{step}.pftrace", steps=steps) as prof:
        for _ in range(4):
            for _ in range(50):
                assert prof.buffer("sums", grid=64, num_warps=4) is None
            prof.step()
    at_most = 1  # no step of these is recorded
    assert max(asked.count(step) for step in set(asked)) <= at_most


def test_each_cycle_is_a_file_and_its_memory_is_given_back(host: Host, tmp_path: Path) -> None:
    chosen = ikp.schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    with ikp.profile(tmp_path / "x.{step}.pftrace", steps=chosen) as prof:
        had = run(host, prof, 11)
        recording = prof._recording
        assert recording is not None and recording.segments == []
    assert had == ["none", *["none", "off", "on", "on"] * 2, "none", "none"]
    launches = {
        path.name: [each.label for each in ikp.load(path).launches] for path in tmp_path.iterdir()
    }
    assert launches == {"x.3.pftrace": ["k3", "k4"], "x.7.pftrace": ["k7", "k8"]}


def test_a_cycle_that_the_session_ends_is_written_then(host: Host, tmp_path: Path) -> None:
    with ikp.profile(tmp_path / "x.{step}.pftrace", steps=ikp.schedule(active=2)) as prof:
        run(host, prof, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.0.pftrace", "x.2.pftrace"]
    assert [each.label for each in ikp.load(tmp_path / "x.2.pftrace").launches] == ["k2"]


def test_a_signal_waits_for_the_cycle_that_is_written(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else both write one file, and the launches of one of the two are lost."""
    real, chosen = _life.save, ikp.schedule(active=2)

    def slow(*args: Any, **options: Any) -> str:
        if threading.current_thread() is not signalled:
            signalled.start()
            signalled.join(0.3)
        return real(*args, **options)

    monkeypatch.setattr(_life, "save", slow)
    with ikp.profile(tmp_path / "x.{step}.pftrace", steps=chosen) as prof:
        recording = prof._recording
        assert recording is not None
        signalled = threading.Thread(target=prof._terminate, args=(recording,))
        run(host, prof, 2)
        signalled.join()
    (path,) = tmp_path.iterdir()
    assert [each.label for each in ikp.load(path).launches] == ["k0", "k1"]


def test_cycles_are_passed_on_or_stay_in_one_trace(host: Host, tmp_path: Path) -> None:
    passed: list[Any] = []
    chosen = ikp.schedule(wait=1, active=1)
    with ikp.profile(steps=chosen, on_trace_ready=passed.append) as prof:
        run(host, prof, 4)
    assert [[each.label for each in trace.launches] for trace in passed] == [["k1"], ["k3"]]
    with ikp.profile(tmp_path / "x.pftrace", steps=chosen) as prof:
        run(host, prof, 4)
    assert [each.label for each in ikp.load(tmp_path / "x.pftrace").launches] == ["k1", "k3"]


def test_the_oldest_files_go_where_the_disk_is_bounded(host: Host, tmp_path: Path) -> None:
    chosen = ikp.schedule(active=1)
    with ikp.profile(tmp_path / "x.{step}.pftrace", steps=chosen, disk=1) as prof:
        run(host, prof, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["x.3.pftrace"]
    size = (tmp_path / "x.3.pftrace").stat().st_size
    with ikp.profile(
        tmp_path / "y.{step}.pftrace", steps=chosen, disk=3 * size + size // 2
    ) as prof:
        run(host, prof, 5)
    assert sorted(path.name for path in tmp_path.glob("y.*")) == [
        f"y.{n}.pftrace" for n in (2, 3, 4)
    ]


def test_options_that_want_another_are_refused(tmp_path: Path) -> None:
    chosen = ikp.schedule(active=1)
    for options, text in (
        ({"path": "x.{step}.pftrace"}, "wants the step of each cycle"),
        ({"disk": 5}, "disk is for a session with steps"),
        ({"on_trace_ready": print}, "on_trace_ready is for a session with steps"),
        ({"disk": 5, "steps": chosen, "path": "x.pftrace"}, "write {step} into the path"),
        ({"steps": 3}, "make one with ikp.schedule"),
    ):
        wrong: dict[str, Any] = options
        with pytest.raises(UsageError, match=text.replace("{", "\\{")):
            ikp.profile(**wrong)


@pytest.mark.usefixtures("host")
@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_between_two_steps_that_wait_no_launch_is_decided_on_anew() -> None:
    with ikp.profile(steps=ikp.schedule(wait=3, warmup=1, active=1)) as prof:
        for before, after in itertools.pairwise(map(prof._cycles.schedule.phase, range(9))):
            prof.buffer("k")
            decided = known_launch.revocations[0]
            prof.step()
            anew = known_launch.revocations[0] > decided
            assert anew == (not before is after is Phase.WAIT)


@pytest.mark.usefixtures("host")
@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_a_label_that_ran_plain_is_asked_about_anew_in_each_step_and_session() -> None:
    """Outside of windows the answer is kept, as most launches of a long program are there."""
    prof = ikp.profile(steps=ikp.schedule(wait=2, active=1))
    for _ in range(2):
        with prof:
            for phase in map(prof._cycles.schedule.phase, range(4)):
                assert {prof.buffer("k") is None for _ in range(3)} == {phase is Phase.WAIT}
                wrong: tuple[Any, ...] = ({"label": ["k"]}, {"label": "k", "regions": {-1: "a"}})
                for each in wrong:
                    with pytest.raises(IkpError):
                        prof.buffer(**each)
                prof.step()
        with pytest.raises(UsageError, match="outside the session"):
            prof.buffer("k")
        prof = ikp.profile(steps=ikp.schedule(wait=2, active=1))
