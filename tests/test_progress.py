"""The progress bar lives in ``ikp/progress.py``; what writes long traces uses it."""

import io
import subprocess
import sys
import threading

import pytest

from ikp import progress
from ikp.progress import track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def begins_with(monkeypatch, stderr):
    """Have this process's stderr be a stream, from its begin on."""
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(sys, "__stderr__", stderr)


class Clock:
    """A clock that steps by ``step`` seconds at each reading."""

    def __init__(self, step: float):
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


def run(monkeypatch, stderr, step, **options):
    begins_with(monkeypatch, stderr)
    monkeypatch.setattr(progress, "time", Clock(step))
    return list(track(range(5), 5, "writing", **options))


def test_a_path_in_the_description_is_no_markup(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    begins_with(monkeypatch, Terminal())
    monkeypatch.setattr(progress, "time", Clock(0.6))
    list(track(range(5), 5, "writing [red]x[/] \x1b]0;t\a"))
    assert "[red]x[/] \\x1b]0;t\\x07" in sys.stderr.getvalue()


def test_long_work_on_a_terminal_shows_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    err = Terminal()
    assert run(monkeypatch, err, 0.6) == [0, 1, 2, 3, 4]
    assert "writing" in err.getvalue() and "100%" in err.getvalue()


def test_short_work_shows_nothing(monkeypatch):
    err = Terminal()
    assert run(monkeypatch, err, 0.01) == [0, 1, 2, 3, 4]
    assert err.getvalue() == ""


def test_nothing_is_shown_where_stderr_is_no_terminal_unless_forced(monkeypatch):
    err = io.StringIO()
    assert run(monkeypatch, err, 0.6) == [0, 1, 2, 3, 4]
    assert err.getvalue() == ""
    assert run(monkeypatch, err, 0.6, force=True) == [0, 1, 2, 3, 4]
    assert "writing" in err.getvalue()


def test_no_stderr_at_all_is_no_terminal(monkeypatch):
    assert run(monkeypatch, None, 0.6) == [0, 1, 2, 3, 4]


def test_no_thread_draws_it(monkeypatch):  # none can be started while Python ends
    monkeypatch.setattr(threading.Thread, "start", None)
    err = Terminal()
    assert run(monkeypatch, err, 0.6) == [0, 1, 2, 3, 4]
    assert "writing" in err.getvalue()


def test_an_exception_in_the_work_removes_the_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    err = Terminal()
    begins_with(monkeypatch, err)
    monkeypatch.setattr(progress, "time", Clock(0.6))

    def chunks():
        yield from range(4)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        list(track(chunks(), 5, "writing"))
    assert err.getvalue().endswith("\x1b[2K")  # rich erases the bar's line last


def test_importing_and_short_work_load_no_rich():
    code = (
        "import sys; from ikp.progress import track; list(track(range(3), 3, 'x', force=True));"
        "assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_told_is_shown(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    begins_with(monkeypatch, Terminal())
    monkeypatch.setattr(progress, "time", Clock(0.6))
    with progress.progress(4, "decoding") as told:
        for more in (0.5, 0.75, 1.75):
            told(more)
    assert "decoding" in sys.stderr.getvalue() and " 75%" in sys.stderr.getvalue()
