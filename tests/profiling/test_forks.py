"""Processes that are forked while a session is open: told, and no harm to the parent's trace."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import ikp
from ikp.errors import UsageError
from ikp.session.current import current
from tests.host import Host, work

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def in_a_child(body: Callable[[], None]) -> None:
    """Run ``body`` in a forked process; fail with what it raised there."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            body()
        except BaseException:  # noqa: BLE001 - handed to the parent
            os.write(write, traceback.format_exc().encode()[-4000:])
            code = 1
        finally:
            os._exit(code)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(read) as told:
        text = told.read()
    assert os.waitstatus_to_exitcode(status) == 0, text


def test_a_child_that_takes_a_buffer_is_told_and_runs_plain(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "k.lines"

    def child() -> None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert current() is prof
            assert prof.buffer("child's") is None
        (warning,) = told
        assert "was forked while the session was open, and is not recorded" in str(warning.message)
        assert warning.filename == __file__

    with ikp.profile(path) as prof:
        host.run(prof.buffer("before"), work())
        in_a_child(child)
        host.run(prof.buffer("after"), work())
    assert path.read_text() == "before 4\nafter 4\n"


def test_a_child_that_comes_to_the_end_first_writes_nothing(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "k.lines"
    prof = ikp.profile(path)

    def child() -> None:
        prof.__exit__(None, None, None)
        assert not path.exists()
        with pytest.raises(UsageError, match=r"prof.trace was called in a process that was forked"):
            _ = prof.trace

    def reset() -> None:
        with pytest.raises(UsageError, match=r"prof.reset was called in a process that was forked"):
            prof.reset()

    with prof:
        host.run(prof.buffer("k"), work())
        in_a_child(child)
        in_a_child(reset)
    assert path.read_text() == "k 4\n"


def test_a_child_opens_a_session_of_its_own(host: Host, tmp_path: Path) -> None:
    def child() -> None:
        with ikp.profile(tmp_path / "child.lines") as own:
            assert current() is own
            host.run(own.buffer("child's", size=4096), work())  # torch copies more in threads

    with ikp.profile(tmp_path / "parent.lines") as prof:
        in_a_child(child)
        host.run(prof.buffer("parent's"), work())
    assert (tmp_path / "child.lines").read_text() == "child's 4\n"
    assert (tmp_path / "parent.lines").read_text() == "parent's 4\n"


def test_a_launch_in_a_child_with_the_parents_buffer_is_told(host: Host) -> None:
    def child() -> None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            buffer.data.data_ptr()
        assert "the buffer 'k' of the process that this one was forked from" in str(told[0].message)

    with ikp.profile() as prof:
        buffer = prof.buffer("k")
        in_a_child(child)
        host.run(buffer, work())


def test_a_started_session_is_left_to_the_process_that_started_it(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "k.lines"
    prof = ikp.profile(path).start()

    def child() -> None:
        import atexit

        atexit._run_exitfuncs()
        assert not path.exists()

    host.run(prof.buffer("k"), work())
    in_a_child(child)
    prof.stop()
    assert path.read_text() == "k 4\n"
