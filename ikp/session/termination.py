"""SIGTERM and SIGHUP handling: open sessions are ended, and write their traces, before the process.

Python's own handlers run in the main thread, once that is back in Python: never, where it waits for
a kernel that does not end. A handler in C does not need the main thread. ``faulthandler`` has one:
on a signal it writes a traceback to a file, here a pipe, which a thread of ikp's own reads. Python
code does not see that handler: ``signal.getsignal`` says ``SIG_DFL``, as it does without ikp, and a
handler that the program sets replaces it.

Where the program has set a handler before, or ignores a signal, that signal is left alone. LLVM's
handler does not count: it comes with the first kernel that Triton or another compiler makes in this
process, removes temporary files and lets the signal have its effect. It does so after ikp.
"""

from __future__ import annotations

import _thread
import ctypes
import faulthandler
import fcntl
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
PATIENCE_S: Final = 5
"""The longest wait for a kernel that does not end."""
LIMIT_S: Final = 60
"""After so long the signal has its effect, even if traces are not written by then."""
_STOP: Final = b"\0"
_LLVM: Final = (signal.SIGTERM, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGSYS)
"""Signals that end a process, and for which LLVM sets one handler."""
_SIGACTION_BYTES: Final = 256
"""More than the size of any libc's ``struct sigaction``, which begins with the handler."""
_HIGH: Final = 500
"""The lowest file descriptor of ikp's pipes: programs may depend on the low ones they get."""


def on_termination(end: Callable[[], None]) -> Callable[[], None]:
    """Have ``end`` called when a signal comes that ends this process, in a thread of ikp's own.

    The latest ``end`` is called first. A forked process has none of them.

    Returns:
        A function that takes ``end`` back.
    """
    return _watch.add(end)


def hold() -> None:
    """Wait, where a signal is ending the process: the program must not end before it."""
    _watch.hold()


@contextmanager
def held_off() -> Iterator[None]:
    """Within the context, ``hold`` does not wait in this thread: an ``end`` waits for it."""
    _watch.exempt.add(_thread.get_ident())
    try:
        yield
    finally:
        _watch.exempt.discard(_thread.get_ident())


class _Pipe:
    """A pipe with high file descriptors, out of the program's way."""

    def __init__(self) -> None:
        low = os.pipe()
        most = os.sysconf("SC_OPEN_MAX")  # -1: any number
        least = _HIGH if most < 0 else min(_HIGH, most // 2)
        self.read, self.write = (fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, least) for each in low)
        for each in low:
            os.close(each)
        os.set_blocking(self.write, False)  # a handler must never wait
        self._known = [os.fstat(each) for each in (self.read, self.write)]

    def is_whole(self) -> bool:
        """Return whether both ends are still this pipe: a program may close and reuse them."""
        try:
            found = [os.fstat(each) for each in (self.read, self.write)]
        except OSError:
            return False
        return all(map(os.path.samestat, found, self._known))

    def close(self) -> None:
        if self.is_whole():
            os.close(self.read)
            os.close(self.write)


class _Watch:
    """The armed signals and the thread that waits for them, while any ``end`` is registered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []
        self._pipes: dict[int, _Pipe] = {}  # by the signal
        self._stop: _Pipe | None = None
        self._over = threading.Lock()  # held while the thread runs
        self._mask: set[int] = set()  # which signals were blocked before a fork
        self.exempt: set[int] = set()  # threads that an ``end`` waits for
        self._ending = 0  # the thread that calls all ends, once a signal has come
        self._effective = threading.Event()  # the signal has had its effect

    def add(self, end: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            self._ends.append(end)
            if len(self._ends) == 1:
                self._arm()

        def remove() -> None:
            with self._lock:
                if end in self._ends:
                    self._ends.remove(end)
                    if not (self._ends or self._ending):
                        self._disarm()
            self.hold()

        return remove

    def hold(self) -> None:
        thread = _thread.get_ident()
        if self._ending and self._ending != thread and thread not in self.exempt:
            with self._over:
                pass

    def _arm(self) -> None:
        free = [
            each
            for each in SIGNALS
            if signal.getsignal(each) == signal.SIG_DFL and not _is_caught(each)
        ]
        for each in free:
            self._pipes[each] = pipe = _Pipe()
            faulthandler.unregister(each)  # of an earlier session, which another handler replaced
            faulthandler.register(each, file=pipe.write, all_threads=False, chain=False)
        if self._pipes:
            self._stop = _Pipe()
            self._start()

    def _start(self) -> None:
        self._over.acquire()
        _thread.start_new_thread(self._run, ())

    def _halt(self) -> None:
        """Stop the thread and wait for its end; never returns if the thread ends the process."""
        if self._stop is not None and self._stop.is_whole():
            os.write(self._stop.write, _STOP)
            with self._over:
                os.read(self._stop.read, 1)

    def _disarm(self) -> None:
        self._halt()
        self._give_back()
        self._close()

    def _give_back(self) -> None:
        for each in self._pipes:
            if signal.getsignal(each) == signal.SIG_DFL:  # else the program has set a handler since
                faulthandler.unregister(each)

    def _all_pipes(self) -> list[_Pipe]:
        return [*self._pipes.values(), *([self._stop] if self._stop else [])]

    def _close(self) -> None:
        for pipe in self._all_pipes():
            pipe.close()
        self._pipes, self._stop = {}, None
        self._over = threading.Lock()  # a thread that could not be ended holds the other

    def _run(self) -> None:
        over = self._over
        try:
            number = self._awaited()
            if number is not None:
                self._end(number)
        finally:
            over.release()

    def _awaited(self) -> int | None:
        """Wait for a signal, and return it; None where there is nothing to wait for any more."""
        poll = select.poll()
        readers = {pipe.read: number for number, pipe in self._pipes.items()}
        for pipe in self._all_pipes():
            poll.register(pipe.read, select.POLLIN)
        found = poll.poll()
        # Where the program has closed the pipes, no signal would come through. Files that it has
        # opened since have their descriptors: poll watches those, and /dev/null is always readable.
        whole = all(pipe.is_whole() for pipe in self._all_pipes())
        if not whole or any(events & ~select.POLLIN for _, events in found):
            self._give_back()
            return None
        return next((readers[reader] for reader, _ in found if reader in readers), None)

    def _end(self, number: int) -> None:
        """Call all ends, and let the signal have its effect.

        A second signal within ``PATIENCE_S`` is the same wish: ``timeout`` and Slurm send one to
        each process of a group, and parents pass it on. A later one has its effect at once.
        """
        self._ending = _thread.get_ident()
        _thread.start_new_thread(self._insist, (number,))
        while True:
            ends = tuple(self._ends)
            if not ends:
                break
            try:
                ends[-1]()
            except BaseException as error:  # noqa: BLE001 - the process ends after any error
                with suppress(Exception):
                    print(f"ikp: the trace is lost: {error}", file=sys.__stderr__)
            with suppress(ValueError):
                self._ends.remove(ends[-1])
        self._give_back()
        os.kill(os.getpid(), number)
        self._effective.set()  # the process still lives: process 1 of a container ignores signals
        self._ending = 0
        self._close()

    def _insist(self, number: int) -> None:
        """Let the signal have its effect after ``LIMIT_S``, however long the ends take."""
        if self._effective.wait(PATIENCE_S):
            return
        self._give_back()
        if not self._effective.wait(LIMIT_S - PATIENCE_S):
            os.kill(os.getpid(), number)

    def before_fork(self) -> None:
        """Stop the thread, and block the signals, which would reach the child through the pipes.

        Python warns of forks beside threads.
        """
        self._lock.acquire()
        if self._pipes:
            self._mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, self._pipes))
            self._halt()

    def after_in_parent(self) -> None:
        """Start the thread again, and unblock the signals."""
        if self._pipes:
            self._start()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        self._lock.release()

    def after_in_child(self) -> None:
        """Restore the signals as they are without ikp."""
        armed = bool(self._pipes)
        self._give_back()
        self._close()
        self._ends.clear()
        if armed:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        self._lock.release()


def _is_caught(number: int) -> bool:
    """Return whether a signal has a handler in C: ``faulthandler``'s or a library's, not LLVM's."""
    found = _handler(number)
    return bool(found) and any(_handler(each) != found for each in _LLVM)


def _handler(number: int) -> int:
    """Return the address of a signal's handler, 0 where there is none.

    Raises:
        OSError: the system does not say.
    """
    action = (ctypes.c_byte * _SIGACTION_BYTES)()
    if ctypes.CDLL(None, use_errno=True).sigaction(number, None, action):
        code = ctypes.get_errno()
        raise OSError(code, f"the handler of signal {number} can't be seen: {os.strerror(code)}")
    return ctypes.c_void_p.from_buffer(action).value or 0


_watch = _Watch()
os.register_at_fork(
    before=_watch.before_fork,
    after_in_parent=_watch.after_in_parent,
    after_in_child=_watch.after_in_child,
)
