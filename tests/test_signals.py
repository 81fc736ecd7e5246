"""What a program's signal handler raises reaches the program, whatever ikp was doing."""

# ruff: noqa: BLE001, PT012, TRY300 - fences are what is tested, struck in the middle of blocks

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from ikp.signals import Interrupted, allowed, deferred, pass_on

pytestmark = pytest.mark.any_pins


class Limit(TimeoutError):  # noqa: N818
    """What a time limit raises: an OSError, which many a fence takes for its own."""


def over(number: int, frame: FrameType | None) -> None:
    raise Limit(number)


def with_any(*_: object) -> None:
    raise Limit


def forgetting(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise Limit


def deep(number: int, frame: FrameType | None) -> None:
    over_there()


def over_there() -> None:
    raise Limit


class Handler:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise Limit

    def method(self, number: int, frame: FrameType | None) -> None:
        del frame
        raise Limit


def more(word: str, number: int, frame: FrameType | None) -> None:
    raise Limit(word)


def removed(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Limit


HANDLERS: list[Callable[[int, FrameType | None], None]] = [
    *(over, with_any, forgetting, deep, Handler(), Handler().method, removed),
    functools.partial(more, "x"),
]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGUSR1, signal.SIGUSR2)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def send(number: int = signal.SIGUSR1) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("handler", HANDLERS, ids=range(len(HANDLERS)))
def test_a_fence_passes_on_what_a_handler_raises(handler: Any) -> None:
    signal.signal(signal.SIGUSR1, handler)

    def work() -> str:
        try:
            send()
            return "not interrupted"
        except Exception as error:
            pass_on(error)
            return "taken for ikp's own failure"

    with pytest.raises(Limit):
        work()


def test_a_fence_passes_on_what_was_wrapped_on_the_way() -> None:
    signal.signal(signal.SIGUSR1, over)

    def inner() -> None:
        try:
            send()
        except OSError as error:
            raise ValueError("can't be read") from error

    def work() -> None:
        try:
            inner()
        except Exception as error:
            pass_on(error)

    with pytest.raises(Limit):
        work()


def test_a_fence_keeps_what_is_ikps_own() -> None:
    signal.signal(signal.SIGUSR1, over)

    def with_frame(number: int, frame: FrameType) -> None:
        raise ValueError(number, frame)

    def work() -> str:
        try:
            with_frame("no number", sys._getframe())  # type: ignore[arg-type]
        except Exception as error:
            pass_on(error)
            return "kept"
        return ""

    assert work() == "kept"
    try:  # the program handles its limit, and launches a kernel meanwhile
        send()
    except Limit:
        assert work() == "kept"


@pytest.mark.parametrize("handler", HANDLERS, ids=range(len(HANDLERS)))
def test_deferred_work_is_whole_and_then_the_handler_strikes(handler: Any) -> None:
    signal.signal(signal.SIGUSR1, handler)
    done = []
    with pytest.raises(Limit), deferred():
        try:
            send()
            done.append("first")
        except Exception:
            done.append("struck")
        done.append("second")
    assert done == ["first", "second"]
    assert signal.getsignal(signal.SIGUSR1) == (signal.SIG_DFL if handler is removed else handler)


def test_a_handler_that_raises_nothing_runs_once_and_gets_the_programs_frame() -> None:
    calls: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGUSR1, lambda *told: calls.append(told))
    with deferred():
        with deferred():  # inside of another
            send()
            send()
        assert calls == []
    ((number, frame),) = calls
    assert number == signal.SIGUSR1 and frame is sys._getframe()


def test_interrupts_and_exits_pass() -> None:
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
    with pytest.raises(SystemExit), deferred():
        send()


def test_several_handlers_are_installed_again_and_all_run() -> None:
    ran = []
    signal.signal(signal.SIGUSR1, over)
    signal.signal(signal.SIGUSR2, lambda *_: ran.append(2))
    with deferred():
        send(signal.SIGUSR2)
    with pytest.raises(Limit), deferred():
        send(signal.SIGUSR2)
        send(signal.SIGUSR1)
    assert ran == [2, 2]
    assert signal.getsignal(signal.SIGUSR1) is over


def test_a_window_lets_handlers_run_and_ends_the_work_with_what_they_raise() -> None:
    ran: list[object] = []
    signal.signal(signal.SIGUSR1, lambda *_: ran.append(1))
    with deferred(), allowed():
        send()
        assert ran == [1]
    signal.signal(signal.SIGUSR1, over)
    with pytest.raises(Limit), deferred():
        try:
            with allowed():
                send()
        except Exception:
            ran.append("taken for a failure")
        ran.append("went on")
    assert ran == [1]


def test_a_window_runs_what_was_put_off_before_it() -> None:
    signal.signal(signal.SIGUSR1, over)
    with pytest.raises(Limit), deferred():
        send()
        with pytest.raises(Interrupted), allowed():
            pytest.fail("the window opens")
        raise Interrupted(Limit())


def test_a_failure_in_a_window_is_no_handlers() -> None:
    with deferred(), pytest.raises(OSError, match="a broken pipe"), allowed():
        raise OSError("a broken pipe")


def test_work_may_have_no_windows() -> None:
    signal.signal(signal.SIGUSR1, over)
    done = []
    with pytest.raises(Limit), deferred(windows=False):
        with allowed():
            send()
        done.append("all of it")
    assert done


def test_work_that_c_calls_hands_over() -> None:
    signal.signal(signal.SIGUSR1, over)
    for waits in (False, True):
        with deferred(hand_over=True) as work:
            send()
            if waits:
                with allowed():
                    pytest.fail("the window opens")
        assert work is not None and work.due
        with pytest.raises(Limit):
            work.deliver()
        assert not work.due


def test_what_siginterrupt_asked_for_stays() -> None:
    def flags() -> int:
        action = ctypes.create_string_buffer(256)
        ctypes.CDLL(None).sigaction(int(signal.SIGUSR1), None, action)
        return int.from_bytes(action.raw[136:140], sys.byteorder)  # behind handler and mask

    signal.signal(signal.SIGUSR1, over)
    usual = flags()
    signal.siginterrupt(signal.SIGUSR1, False)
    asked = flags()
    with deferred():
        pass
    assert flags() == asked != usual
    assert signal.getsignal(signal.SIGUSR1) is over


def test_a_spared_signal_strikes_at_once() -> None:
    signal.signal(signal.SIGUSR1, over)
    done = []
    with pytest.raises(Limit), deferred(sparing=(signal.SIGUSR1,)):
        send()
        done.append(1)
    assert done == []


def test_other_threads_put_nothing_off() -> None:
    found: list[object] = []

    def work() -> None:
        with deferred() as put_off, allowed():
            found.append(put_off)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None]


def test_struck_at_every_instruction() -> None:
    """A signal that comes anywhere in entering and leaving is delivered, and all is as before."""
    signal.signal(signal.SIGUSR1, over)
    signal.signal(signal.SIGUSR2, lambda *_: None)
    at, struck = 0, True
    while struck:
        at += 1
        struck = _struck(at)
        assert signal.getsignal(signal.SIGUSR1) is over, at
    assert at > 20


def _struck(at: int) -> bool:
    """Enter and leave a block, with a signal before the ``at``-th line of it."""
    left = [at]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith("ikp/signals.py"):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                send()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with deferred():
            pass
    except Limit:
        return True
    finally:
        sys.settrace(before)
    assert left[0] > 0, f"lost: the signal before line {at}"
    return False
