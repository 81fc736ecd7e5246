"""The program's signal handlers: deferred during ikp's work; ``pass_on`` re-raises their errors.

An error that a handler raises belongs to the program: a time limit, a Ctrl-C, a test that is to
fail. Python runs handlers between any two instructions of the main thread, so in the middle of
ikp's work, too, where ``except OSError`` would take a time limit for a file that can't be read. So
there are two ways, for two kinds of work:

- ``deferred()`` is for work that is ikp's alone. Handlers run when it is over. While that work
  waits, as for a compiler, it opens a window, ``allowed()``: handlers run in it at once, and an
  error of one ends the work as ``Interrupted``, which no ``except Exception`` takes for a failure.
- ``pass_on(error)`` is for a fence around work that is not ikp's alone, which may take minutes:
  it raises the error that a handler has raised, and returns for any other error.

In other threads Python runs no handlers, and both do nothing.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import inspect
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType, TracebackType
from typing import Any, Final, Self

_signal: Any = importlib.import_module("_signal")
"""The C module under ``signal``: it gives plain numbers, in a tenth of the time."""
_NUMBERS: Final = tuple(int(each) for each in sorted(signal.valid_signals()))
_ROOM: Final = 256
"""Bytes that hold a ``struct sigaction`` of any Linux."""
_PACKAGE: Final = f"{__name__.partition('.')[0]}."

_Handler = Callable[[int, FrameType | None], Any]


class Interrupted(BaseException):
    """A handler has raised while deferred work waited: the work ends, and ``raised`` is raised."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(raised)
        self.raised = raised


class Deferral:
    """One piece of work during which handlers are deferred.

    ``due`` says whether handlers are still to run, or an error of one is still to be raised:
    afterwards, and only with ``hand_over``. ``deliver`` does both.
    """

    def __init__(self, *, hand_over: bool, sparing: tuple[int, ...], windows: bool) -> None:
        self._hand_over, self._sparing, self.windows = hand_over, sparing, windows
        self._own: dict[int, tuple[_Handler, bytes]] = {}
        self._came: list[int] = []
        self._raised: BaseException | None = None

    @property
    def due(self) -> bool:
        """Whether there is something to deliver."""
        return bool(self._came or self._raised)

    def __enter__(self) -> Self:
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        struck = self._give_back()
        if isinstance(error, Interrupted):
            struck = error.raised
        self._raised = struck
        if not self._hand_over:
            self.deliver()
        return isinstance(error, Interrupted)

    def deliver(self) -> None:
        """Run the handlers of the signals that came; the first error of one is raised."""
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        frame = _programs_frame()
        while self._came:
            number = self._came.pop(0)
            handler = _signal.getsignal(number)
            if callable(handler):
                handler(number, frame)

    @contextmanager
    def window(self) -> Iterator[None]:
        """Run handlers at once; an error of one becomes ``Interrupted``."""
        struck = self._give_back()
        try:
            if struck is not None:
                raise Interrupted(struck)  # noqa: TRY301
            self.deliver()
            yield
        except Exception as error:
            if (found := _raised_by_handler(error, sys._getframe())) is None:  # noqa: SLF001
                raise
            raise Interrupted(found) from None
        except BaseException as error:  # noqa: BLE001 - as Ctrl-C and sys.exit do
            raise (error if isinstance(error, Interrupted) else Interrupted(error)) from None
        finally:
            self._take()

    def _take(self) -> None:
        """Replace all handlers written in Python; until it is replaced, each may still run."""
        try:
            for number in _NUMBERS:
                handler = _signal.getsignal(number)
                if callable(handler) and number not in self._sparing:
                    self._own[number] = handler, _action(number)
                    _signal.signal(number, self._note)
            _active.append(self)
        except BaseException:
            self._give_back()
            raise

    def _give_back(self) -> BaseException | None:
        """Install the handlers again; return the error of one that ran meanwhile."""
        struck: BaseException | None = None
        _active.clear()
        while self._own:
            number = next(iter(self._own))
            handler, action = self._own[number]
            try:
                if _signal.getsignal(number) == self._note:
                    _signal.signal(number, handler)
                    _act(number, action)  # Python forgets the setting of siginterrupt()
                del self._own[number]
            except BaseException as error:  # noqa: BLE001 - of a handler that is installed again
                struck = struck or error
        return struck

    def _note(self, number: int, _: FrameType | None) -> None:
        if number not in self._came:  # a signal that is pending twice is one signal
            self._came.append(number)


_active: list[Deferral] = []
"""The work that handlers are deferred for; in the main thread alone."""


def deferred(
    *, hand_over: bool = False, sparing: tuple[int, ...] = (), windows: bool = True
) -> AbstractContextManager[Deferral | None]:
    """Have the program's signal handlers run after a block of ikp's own work, and not in it.

    Args:
        hand_over: whether the block's user calls ``deliver``, because nothing can be raised where
            the block ends, as in a function that C calls.
        sparing: signals that are not deferred.
        windows: whether ``allowed()`` lets handlers run in a part of it.

    Returns:
        A context of a ``Deferral``; of None outside the main thread, and inside such a block.
    """
    if _active or threading.get_ident() != threading.main_thread().ident:
        return nullcontext()
    return Deferral(hand_over=hand_over, sparing=sparing, windows=windows)


def allowed() -> AbstractContextManager[None]:
    """Have handlers run at once, in a part of deferred work that only waits.

    Raises:
        Interrupted: a handler raised. The work must be given up.
    """
    if not _active or threading.get_ident() != threading.main_thread().ident:
        return nullcontext()
    return _active[0].window() if _active[0].windows else nullcontext()


def pass_on(error: BaseException) -> None:
    """Raise the error of a signal handler, if ``error`` is that, or comes from it.

    For fences, ``except Exception as error: pass_on(error)``, in the function that has the fence.
    """
    found = _raised_by_handler(error, sys._getframe(1))  # noqa: SLF001
    if found is not None:
        raise found


def _raised_by_handler(error: BaseException, fence: FrameType) -> BaseException | None:
    """Return the error of a handler among an error that a fence caught, its causes and contexts."""
    above = _above(fence)
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        trace = each.__traceback__
        if trace is not None and trace.tb_frame in above:
            continue  # the program has caught that one, and called the fence since
        if _has_handler(trace, fence):
            return each
        todo += (each.__cause__, each.__context__)
    return None


def _above(frame: FrameType) -> set[FrameType]:
    """Return the frames that called a frame."""
    found = set()
    caller = frame.f_back
    while caller is not None:
        found.add(caller)
        caller = caller.f_back
    return found


def _has_handler(trace: TracebackType | None, fence: FrameType) -> bool:
    """Return whether an error came through a signal handler, which is none of the fence's frame.

    Up to Python 3.12, a frame keeps what ``f_locals`` returned. Of the fence, that has the error,
    which has the frame: both, and all callers' variables, would stay until garbage is collected.
    """
    while trace is not None:
        if trace.tb_frame is not fence and _is_handler(trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def _is_handler(frame: FrameType) -> bool:
    """Return whether a frame is a signal handler's: the caller passes a number and its frame."""
    code, caller = frame.f_code, frame.f_back
    if caller is None:
        return False
    if caller.f_code is Deferral.deliver.__code__:
        return True
    count = code.co_argcount
    values = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & inspect.CO_VARARGS:
        values += frame.f_locals.get(code.co_varnames[count + code.co_kwonlyargcount], ())
    passed = any(
        frame_ is caller and isinstance(number, int)
        for number, frame_ in itertools.pairwise(values)
    )
    return passed or code in (_code(_signal.getsignal(number)) for number in _NUMBERS)


def _code(handler: Any) -> object:
    """Return the code of a handler that Python calls; None for a handler in C."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = vars(type(handler)).get("__call__")
    return getattr(function, "__code__", None)


def _programs_frame() -> FrameType | None:
    """Return the innermost frame that is not ikp's: the one that handlers get as interrupted."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        frame = frame.f_back
    return frame


@functools.cache
def _sigaction() -> Any:
    return ctypes.CDLL(None).sigaction


def _action(number: int) -> bytes:
    """Return the system's ``struct sigaction`` of a signal."""
    action = ctypes.create_string_buffer(_ROOM)
    _sigaction()(number, None, action)
    return action.raw


def _act(number: int, action: bytes) -> None:
    _sigaction()(number, action, None)
