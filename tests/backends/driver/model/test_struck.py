"""Exceptions that strike while a launch is decided: they arrive once, soon, in the same thread."""

import ctypes
import signal
import threading
from collections.abc import Callable

import pytest

from ikp.errors import PatchError
from tests.backends.driver.model.building import Built
from tests.backends.driver.model.driven import Counting, Driven, driven

pytestmark = pytest.mark.any_pins


class _Outcome(BaseException):
    """As pytest has them: no ``Exception``."""


def _function(program: Driven) -> int:
    return program.call("cuModuleGetFunction", program.load(1), b"a")


def _raising(error: BaseException | type[BaseException]) -> Callable[..., None]:
    def handler(*_: object) -> None:
        raise error

    return handler


def _spin() -> int:
    """Return after some instructions: what is due strikes here at the latest."""
    return sum(range(1000))


@pytest.fixture
def alarm() -> object:
    """Have a handler for a signal, as programs set one."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR1, before)


RAISED = [KeyboardInterrupt("now"), SystemExit(3), _Outcome("limit"), TimeoutError("limit")]


@pytest.mark.parametrize("error", RAISED, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("when", ["before", "during"])
def test_what_a_handler_raises_arrives_once(
    built: Built, alarm: Callable[..., object], error: BaseException, when: str
) -> None:
    """Before: the signal comes while C++ launches, and is the first that Python sees when asked."""
    with driven(built, launcher := Counting()) as program:
        function = _function(program)
        alarm(_raising(error))
        if when == "before":
            program.model.model_signal(signal.SIGUSR1)
        else:
            launcher.during = lambda: signal.raise_signal(signal.SIGUSR1)
        arrived: list[BaseException] = []
        times = program.times()
        for _ in range(2):
            try:
                program.launch(function)
                _spin()
            except BaseException as caught:  # noqa: BLE001 - whatever it is
                arrived.append(caught)
                launcher.during = lambda: None
        assert arrived == [error]
        assert program.times() == times + 2  # the plain kernel was launched
        assert not launcher.failed
        assert program.launch(function) == (1, "a", True)


def test_an_error_of_ikps_own_is_told_and_does_not_arrive(built: Built) -> None:
    def fails() -> None:
        raise PatchError("no")

    with driven(built, launcher := Counting()) as program:
        launcher.during = fails
        assert program.launch(_function(program)) == (1, "a", False)
        _spin()
    assert launcher.plain == ["a: could not be marked: no"]


def test_what_another_thread_sends_arrives_in_a_thread(built: Built) -> None:
    """Some tools end a thread so."""
    with driven(built, launcher := Counting()) as program:
        function, caught, context = _function(program), list[str](), program.model.model_current()

        def struck() -> None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(threading.get_ident()), ctypes.py_object(SystemExit)
            )
            _spin()

        def work() -> None:
            program.library.cuCtxSetCurrent(ctypes.c_void_p(context))
            try:
                program.launch(function)
                _spin()
            except SystemExit as error:
                caught.append(type(error).__name__)
            _spin()

        launcher.during = struck
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        launcher.during = lambda: None
    assert caught == ["SystemExit"] and not launcher.failed
