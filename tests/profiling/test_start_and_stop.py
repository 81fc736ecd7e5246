"""Sessions in separate steps: start, stop, reset, and what nobody stopped."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.core import abi
from ikp.errors import ExportError, IkpWarning, UsageError
from ikp.session.current import current
from tests.core.decoding.checks import assert_holds
from tests.host import Host, work
from tests.processes import slim_environment

pytest.importorskip("torch")


def test_start_and_stop_do_what_a_with_block_does(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "k.lines"
    prof = ikp.profile(path).start()
    assert current() is prof
    truth = host.run(prof.buffer("k"), work(3))
    assert not path.exists()
    trace = prof.stop()
    assert_holds(trace, truth)
    assert trace is prof.trace
    assert path.read_text() == "k 4\n"
    assert current() is None
    with pytest.raises(UsageError, match=r"prof.buffer was called outside.*prof.start\(\)"):
        prof.buffer("k")


def test_start_refuses_what_a_with_block_refuses(host: Host, tmp_path: Path) -> None:
    (tmp_path / "there.lines").write_text("precious")
    with pytest.raises(ExportError, match="exists: pass force=True"):
        ikp.profile(tmp_path / "there.lines").start()
    prof = ikp.profile()
    with pytest.raises(UsageError, match=r"not open.*never started. Call prof.start\(\) first"):
        prof.stop()
    prof.start()
    with pytest.raises(UsageError, match=r"already open.*make a new one"):
        prof.start()
    with pytest.raises(UsageError, match="already open"), prof:
        pass
    prof.stop()
    with pytest.raises(UsageError, match="stopped before"):
        prof.stop()


def test_losses_are_told_where_stop_is_called(host: Host) -> None:
    prof = ikp.profile().start()
    prof.buffer("idle")
    with pytest.warns(IkpWarning, match="nothing was recorded for 'idle'") as caught:
        prof.stop()
    assert caught[0].filename == __file__


def test_a_block_may_be_stopped_inside(host: Host) -> None:
    with ikp.profile() as prof:
        host.run(prof.buffer("k"), work())
        trace = prof.stop()
    assert prof.trace is trace
    assert len(trace.launches) == 1


NEVER_STOPPED = """
import sys
import numpy as np
import ikp
from ikp import registry
from tests.segments import Launch, Record, Segment, Warp

class Backend:
    interface = registry.INTERFACE
    def device_type(self): return "cpu"
    def argument(self, segment): return segment
    def names(self): return {}

load = registry.load
registry.load = lambda group, name: Backend() if name == "model" else load(group, name)
prof = ikp.profile(*sys.argv[1:], backend="model").start()
buffer = prof.buffer("k")
model = Segment(buffer.nbytes)
model.run(Launch({(0, 0): Warp([Record(10, 20)])}))
buffer.data.numpy()[:] = np.frombuffer(model.data, np.uint8)
"""


def never_stopped(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", NEVER_STOPPED, *args],
        env=slim_environment(folder),
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.any_pins
def test_what_nobody_stopped_is_written_when_the_program_ends(tmp_path: Path) -> None:
    path = tmp_path / "k.csv"
    ran = never_stopped(tmp_path, str(path))
    assert "Warning" not in ran.stderr
    assert path.read_text().count("\n") == 2


@pytest.mark.any_pins
def test_what_nobody_stopped_and_has_no_path_is_told(tmp_path: Path) -> None:
    assert "the program ended before prof.stop(): it has no path" in never_stopped(tmp_path).stderr


# reset


def test_a_buffer_that_is_emptied_goes_on(host: Host) -> None:
    """The separate steps of other profilers: buffer, reset, launch, save."""
    with ikp.profile() as prof:
        buffer = prof.buffer("copy")
        prof.reset()
        assert prof.trace.launches == ()
        truth = host.run(buffer, work(5))
        assert_holds(prof.trace, truth)
        prof.reset()
        assert prof.trace.launches == ()
        assert not buffer.data[abi.LAUNCH_HEADER_BYTES :].any()
        truth = host.run(buffer, work(2))
    assert_holds(prof.trace, truth)


def test_an_emptied_buffer_still_says_which_warps_record(host: Host) -> None:
    with ikp.profile() as prof:
        buffer = prof.buffer("k", warps=[2], blocks=range(1, 9, 2))
        before = buffer.data[: abi.LAUNCH_HEADER_BYTES].clone()
        assert before.any()
        buffer.data.fill_(1)
        prof.reset()
        assert buffer.data[: abi.LAUNCH_HEADER_BYTES].equal(before)
        prof.discard(buffer)


def test_what_was_recorded_before_a_reset_is_not_missed_after_it(host: Host) -> None:
    with ikp.profile() as prof:
        warm_up, idle = prof.buffer("warm-up"), prof.buffer("idle")
        host.run(warm_up, work())
        prof.reset()
        host.run(prof.buffer("k"), work())
        with pytest.warns(IkpWarning, match="nothing was recorded for 'idle': "):
            prof.stop()
    assert [launch.label for launch in prof.trace.launches] == ["k"]
    assert idle is not warm_up


def test_buffers_that_nobody_holds_any_more_are_given_back(host: Host) -> None:
    with ikp.profile(buffer_size=40 << 20) as prof:  # a chunk of memory each
        for step in range(3):
            host.run(prof.buffer(f"step {step}"), work())
        assert len(prof._recording.segments) == 3  # type: ignore[union-attr]
        prof.reset()
        assert prof._recording.segments == []  # type: ignore[union-attr]
        host.run(prof.buffer("last"), work())
    assert [launch.label for launch in prof.trace.launches] == ["last"]


def test_reset_is_of_an_open_session(host: Host) -> None:
    with pytest.raises(UsageError, match=r"prof.reset was called outside the session"):
        ikp.profile().reset()


# What comes too late


def test_a_launch_after_the_end_is_told_and_harms_nothing(host: Host) -> None:
    with ikp.profile() as prof:
        argument: Any = prof.buffer("late")
        host.run(argument, work())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            address = argument.data.data_ptr()
    with pytest.warns(IkpWarning, match=r"buffer 'late' after its session ended.*is lost"):
        assert argument.data.data_ptr() == address
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        argument.data.data_ptr()  # told once
    off = ikp.profile()
    with off:
        silent = off.buffer("off", enabled=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silent.data.data_ptr()


def test_memory_that_a_late_launch_may_still_write_to_is_never_given_back(host: Host) -> None:
    import gc
    import weakref

    from ikp.session import handed

    with ikp.profile() as prof:
        argument = prof.buffer("late")
        host.run(argument, work())
    with pytest.warns(IkpWarning):
        address = argument.data.untyped_storage().data_ptr()
    gone = weakref.ref(argument.data)
    del argument, prof
    gc.collect()
    assert gone() is None
    kept = {each.untyped_storage().data_ptr(): key for key, each in handed._pinned.items()}
    del handed._pinned[kept[address]]  # a segment may begin behind its memory's begin


def test_a_failed_run_does_not_replace_a_good_trace_by_an_empty_one(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "k.lines"
    path.write_text("good")

    def fail(prof: ikp.profile, launches: int) -> None:
        with prof:
            buffer = prof.buffer("k")
            for _ in range(launches):
                host.run(buffer, work())
            raise ZeroDivisionError

    told = pytest.warns(IkpWarning, match=f"nothing was recorded before.*so {path} stays")
    with told, pytest.raises(ZeroDivisionError):
        fail(ikp.profile(path, force=True), 0)
    assert path.read_text() == "good"
    with pytest.raises(ZeroDivisionError):
        fail(ikp.profile(path, force=True), 1)
    assert path.read_text() == "k 4\n"
