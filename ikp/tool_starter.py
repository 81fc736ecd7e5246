"""A process beside a program that starts ikp's tools: no tool is a child of the program.

A program may wait for any child (``os.wait()``), handle SIGCHLD, or ignore it, as supervisors do. A
compiler or disassembler of ikp's among its children would be taken for one of its own. So ``ikp
run`` makes this process before it becomes the program, and the program asks it through a socket.

It has left the program's tree. Where the program is the first process of a container, it can't: who
loses the parent becomes that one's child. There it is a child that was cloned without a signal for
its end: ``wait`` does not see it, as long as it does not become another program. It ends with the
program's first process, and kills a tool whose asker closes the connection or dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import selectors
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

if TYPE_CHECKING:
    import socket

_CLONE: Final = {"x86_64": 56, "aarch64": 220}
"""The number of the system call, by machine."""
_FIRST: Final = 1
"""The number of a container's first process."""
_ADOPT_ORPHANS: Final = 36
"""``PR_SET_CHILD_SUBREAPER``."""
_LENGTH: Final = struct.Struct("<Q")
_CREDENTIALS: Final = struct.Struct("3i")
_STDERR: Final = 2
_MOST_FILES: Final = 16
_ASKS_S: Final = 5
"""Seconds in which a request has come whole."""
_CANNOT: Final = 126
_SIGNAL: Final = 128
"""Exit codes, as a shell has them."""
_WAITING: Final = 64
"""How many requests may wait to be taken."""
_name = ""
"""Of the socket that tools are asked for through; none where the program starts them itself."""


class RunsOnError(Exception):
    """A tool has not ended in time. No ``TimeoutError``, which the program's handlers raise."""


def use(name: str) -> None:
    """Have tools started through a socket; "" has this process start them itself."""
    global _name  # noqa: PLW0603 - one per process, and its forks
    _name = name


def begin() -> str:
    """Start the process; return the name of its socket, "" where it can't be started.

    For a process of one thread, which is about to become the program.
    """
    import socket

    name, program = f"ikp-tools-{os.urandom(16).hex()}", os.getpid()
    try:
        os.close(os.pidfd_open(program))  # since Linux 5.3
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(f"\0{name}")
            listening.listen(_WAITING)
            if _is_beside(program):
                _serve(listening, program)
    except OSError:
        return ""
    return name


def _is_beside(program: int) -> bool:
    """Fork; return whether this is the new process.

    Raises:
        OSError: the system refuses.
    """
    if program == _FIRST:
        return not _cloned()
    if pid := os.fork():
        os.waitpid(pid, 0)
        return False
    if os.fork():
        os._exit(0)
    return True


def _cloned() -> int:
    """Fork as ``os.fork`` does, but to a child without a signal for its end.

    Raises:
        OSError: the system refuses, or is of an unknown kind.
    """
    import ctypes

    number = _CLONE.get(os.uname().machine)
    if number is None:
        raise OSError(f"how {os.uname().machine} clones a process is not known")
    python, system = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True)
    python.PyOS_BeforeFork()
    pid: int = system.syscall(number, 0, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if pid < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return pid


class Tool:
    """A program that was started for this process; as a context, it is killed where it runs on.

    Args:
        words: the program and its arguments.
        files: descriptors of this process, by the numbers that they have in it; 0 to 2 among them.
        env: its environment.
        cwd: its folder.
        limits: pairs of soft and hard limits, by the number of the resource.
        lasts: whether what it leaves behind is not killed when it ends.

    Raises:
        OSError: it can't be started so.
    """

    def __init__(
        self,
        words: Sequence[str],
        files: Mapping[int, int],
        env: Mapping[str, str],
        cwd: str,
        limits: Mapping[int, tuple[int, int]] | None = None,
        *,
        lasts: bool = False,
    ) -> None:
        if not _name:
            raise OSError("this process starts its tools itself")
        import socket  # a program that launches nothing needs no tool

        about = {
            "words": list(words),
            "files": list(files),
            "env": dict(env),
            "cwd": cwd,
            "limits": dict(limits or {}),
            "lasts": lasts,
            "place": _place(),
        }
        text, self._came = json.dumps(about).encode(), b""
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.settimeout(None)  # the program may have set another one for all
        try:
            self._connection.connect(f"\0{_name}")
            head = _LENGTH.pack(len(text))
            socket.send_fds(self._connection, [head], list(files.values()))
            self._connection.sendall(text)
            error = self._answer()
        except BaseException:
            self._connection.close()
            raise
        if error:
            self._connection.close()
            raise OSError(f"{words[0]} can't be started: {error}")

    def _answer(self) -> Any:
        """Return the next answer.

        Raises:
            OSError: the process that starts tools has ended.
        """
        while b"\n" not in self._came:
            if not (more := self._connection.recv(1 << 12)):
                raise OSError("the process that starts ikp's tools has ended")
            self._came += more
        line, _, self._came = self._came.partition(b"\n")
        return json.loads(line)

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end; return its exit code, negative where a signal killed it.

        Raises:
            OSError: how it ended is not known.
            RunsOnError: it has not ended by then.
        """
        ready = select.poll()  # no ``select``: a program may have thousands of descriptors
        ready.register(self._connection, select.POLLIN)
        if not self._came and not ready.poll(None if seconds is None else 1e3 * seconds):
            raise RunsOnError
        return int(self._answer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _place() -> list[Any]:
    """Return what files' names mean in this process: its root and its mounts."""
    root = os.stat("/")  # noqa: PTH116
    with suppress(OSError):
        return [root.st_dev, root.st_ino, os.readlink("/proc/self/ns/mnt")]  # noqa: PTH115
    return [root.st_dev, root.st_ino, ""]


# --- the process itself -----------------------------------------------------------------------


def _serve(listening: socket.socket, program: int) -> NoReturn:
    """Start tools until the program ends."""
    try:
        import subprocess  # noqa: F401 - before the first request

        _leave(program, listening.fileno())
        with selectors.DefaultSelector() as ready:
            end = os.pidfd_open(program)
            ready.register(end, selectors.EVENT_READ, partial(os._exit, 0))
            ready.register(listening, selectors.EVENT_READ, partial(_accept, listening, ready))
            while True:
                for key, _ in ready.select():
                    key.data()
    finally:  # an error has no place to be seen in; the program starts its tools itself then
        os._exit(1)


def _accept(listening: socket.socket, ready: selectors.BaseSelector) -> None:
    """Take one request, and start its tool."""
    connection, _ = listening.accept()
    connection.settimeout(_ASKS_S)  # others wait meanwhile
    try:
        with ExitStack() as held:
            about, files = _request(connection, held)
            if max(files) > _STDERR:  # numbers that this process may use itself
                pid = os.fork() or _start(about, files, connection)
                wait = partial(_waited, pid)
            else:
                process = _popen(about, files)
                pid, wait = process.pid, process.wait
        _say(connection, "")
    except (OSError, ValueError) as error:
        with connection, suppress(OSError):
            _say(connection, f"{type(error).__name__}: {error}")
        return
    _Started(pid, wait, connection, ready, lasts=about["lasts"])


def _waited(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class _Started:
    """A tool that runs: its end is reported, and it ends with its asker."""

    def __init__(
        self,
        pid: int,
        wait: Callable[[], int],
        asked: socket.socket,
        ready: selectors.BaseSelector,
        *,
        lasts: bool,
    ) -> None:
        self._wait = wait
        self._pid, self._asked, self._ready, self._lasts = pid, asked, ready, lasts
        self._end, self._over = os.pidfd_open(pid), False
        self._ready.register(self._end, selectors.EVENT_READ, self._ended)
        self._ready.register(self._asked, selectors.EVENT_READ, self._left)

    def _left(self) -> None:
        """Kill it, and what it has started: who asked has closed the connection, or is gone."""
        if not self._over:
            self._ready.unregister(self._asked)
            self._kill()
            self._over = True

    def _ended(self) -> None:
        code = self._wait()
        self._kill()
        self._ready.unregister(self._end)
        os.close(self._end)
        if not self._over:
            self._ready.unregister(self._asked)
            self._over = True
        with self._asked, suppress(OSError):
            _say(self._asked, code)

    def _kill(self) -> None:
        if not self._lasts:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)


def _leave(program: int, kept: int) -> None:
    """Leave the program's terminal, files and folder."""
    if program == _FIRST:  # what loses its parent would become a child of the program
        import ctypes

        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in range(3):
        os.dup2(nothing, each)
    for each in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if each > 2 and each != kept:
            with suppress(OSError):  # the listing's own is closed already
                os.close(each)


def _is_own(connection: socket.socket) -> bool:
    """Return whether the same user asks."""
    import socket

    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.geteuid())


def _start(about: Mapping[str, Any], files: Mapping[int, int], asked: socket.socket) -> NoReturn:
    """Start a tool with files of any number, in a process of its own, and end as the tool does."""
    try:
        above = max(files) + 1
        held = {n: fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for n, file in files.items()}
        passed = [number for number in held if number > _STDERR]
        asked.detach()
        for number in passed:
            os.dup2(held[number], number)
        code = _popen(about, held, passed).wait()
        os._exit(code if code >= 0 else _SIGNAL - code)
    finally:
        os._exit(_CANNOT)


def _say(connection: socket.socket, what: str | int) -> None:
    connection.sendall(f"{json.dumps(what)}\n".encode())


def _request(connection: socket.socket, held: ExitStack) -> tuple[dict[str, Any], dict[int, int]]:
    """Return a request, and descriptors of its files by the tool's numbers; ``held`` closes them.

    Raises:
        OSError: it is refused, or does not come whole.
    """
    import socket

    head, received, _, _ = socket.recv_fds(connection, _LENGTH.size, _MOST_FILES)
    for each in received:
        held.callback(os.close, each)
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
    text = b""
    while len(text) < length:
        if not (more := connection.recv(min(length - len(text), 1 << 20))):
            break
        text += more
    about: dict[str, Any] = json.loads(text)
    if not _is_own(connection) or about["place"] != _place():
        raise OSError("another user asks, or files have other names there")
    return about, dict(zip(about["files"], received, strict=True))


def _popen(about: Mapping[str, Any], files: Mapping[int, int], passed: Sequence[int] = ()) -> Any:
    """Start a tool; return its ``subprocess.Popen``."""
    import subprocess  # not for the process that becomes the program

    process = subprocess.Popen(  # noqa: S603 - what the same user asks for
        about["words"],
        stdin=files[0],
        stdout=files[1],
        stderr=files[2],
        pass_fds=passed,
        env=about["env"],
        cwd=about["cwd"],
        start_new_session=True,
    )
    for which, pair in about["limits"].items():
        limit(process.pid, int(which), pair)
    return process


def limit(pid: int, which: int, pair: Sequence[int]) -> None:
    """Limit what a process may use, unless it has ended, or its limit is lower already.

    Args:
        pid: its number.
        which: the resource's number.
        pair: soft and hard limit.
    """
    import resource

    with suppress(OSError, ValueError):
        resource.prlimit(pid, which, (pair[0], pair[1]))
