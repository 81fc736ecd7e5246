"""Child processes of ikp, compilers and NVIDIA's tools, with limits on their time.

A tool that is given odd bytes can spin for ever. So each has a limit of processor time, which the
Linux kernel enforces even if this process dies, and four times as long by the clock. It leads a
process group of its own, which is killed when the wait for it ends: at the limit, or when a signal
handler of the program raises.

Under ``ikp run`` it is no child of the program's (``ikp.tool_starter``). Else it dies with the
thread that started it, if the system has ``setpriv``: Python's ``preexec_fn`` would do that, too,
but can block in programs with threads, and costs a copy of the page tables.
"""

from __future__ import annotations

import io
import os
import resource
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NamedTuple, Self

from ikp.signals import allowed
from ikp.tool_starter import RunsOnError, Tool, limit

_CLOCK: Final = 4
"""Seconds by the clock for each second of processor time: other processes run, too."""
_LEAVES_S: Final = 60
"""Seconds in which a program that leaves another one behind ends."""
_PIECE_BYTES: Final = 1 << 16
_AFTER: Final = 5
"""Seconds in which a killed process ends, if it does not hang in the Linux kernel."""


class TooLongError(Exception):
    """A program that did not end in time, and was killed."""


class Done(NamedTuple):
    """The result of a program that has ended by itself: exit code, stdout, stderr."""

    code: int  # negative: the signal that killed it
    out: str
    said: str  # on stderr


def seconds(size: int, *, least: float = 20.0, each_mb: float = 60.0) -> float:
    """Return the limit for a tool that reads a file: seconds of processor time.

    Args:
        size: of the file, in bytes.
        least: for an empty one.
        each_mb: more for each 10^6 bytes.
    """
    return least + each_mb * size / 1e6


def run(command: Sequence[str | Path], limit_s: float, *, cwd: Path | None = None) -> Done:
    """Run a program and return its exit code and output.

    Args:
        command: the program and its arguments. Its stdin is empty.
        limit_s: seconds of processor time.
        cwd: the folder to run it in.

    Raises:
        OSError: it can't be started.
        TooLongError: it took longer.
    """
    (done,) = run_all([command], limit_s, cwd=cwd)
    return done


def run_all(
    commands: Sequence[Sequence[str | Path]], limit_s: float, *, cwd: Path | None = None
) -> list[Done]:
    """Run several programs at once; raises the errors of ``run``."""
    with ExitStack() as stack:
        started = [stack.enter_context(_ChildProcess(each, limit_s, cwd)) for each in commands]
        return [each.wait() for each in started]


def leave_behind(words: Sequence[str], files: Mapping[int, int], env: Mapping[str, str]) -> int:
    """Run a program that starts a process of its own and ends; return its exit code.

    Args:
        words: the program and its arguments.
        files: descriptors that it gets under their own numbers, or as 0 to 2, which else are empty.
        env: its environment.

    Raises:
        OSError: it can't be started, or does not end.
    """
    with _nothing() as nothing:
        whole = {0: nothing, 1: nothing, 2: nothing, **files}
        with _started(words, whole, env, None, {}, lasts=True) as child:
            try:
                return child.wait(_LEAVES_S)
            except RunsOnError as error:
                raise OSError(f"{words[0]} does not end within {_LEAVES_S} s") from error


def behind(module: str) -> str:
    """Return Python's code of a process that stays, for ``leave_behind``: a module's ``main``.

    It gets ``sys.path``, pickled, at the beginning of its standard input.
    """
    return f"""\
import os, pickle, sys
if os.fork():
    os._exit(0)
os.setsid()
sys.path[:] = pickle.load(sys.stdin.buffer)
from {module} import main
main()
"""


def give_way(nice: int, limit_s: int) -> None:
    """Have this process give way to others, and end after some seconds of processor time."""
    os.nice(nice)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))


class _ChildProcess:
    def __init__(self, command: Sequence[str | Path], limit_s: float, cwd: Path | None) -> None:
        self._name, self._limit_s = str(command[0]), limit_s
        if shutil.which(self._name) is None:
            raise FileNotFoundError(f"there is no program {self._name}")
        whole = max(1, round(limit_s))
        # A second more until SIGKILL, so that SIGXCPU ends it, which only this limit sends.
        limits = {resource.RLIMIT_CPU: (whole, whole + 1), resource.RLIMIT_CORE: (0, 0)}
        env = {**os.environ, "IKP_FOLLOW": "0"}  # no part of the program
        with ExitStack() as undo, ExitStack() as its:
            files = [its.enter_context(_nothing())]
            self._pipes: list[IO[bytes]] = []
            for read, write in (os.pipe(), os.pipe()):
                self._pipes.append(undo.enter_context(os.fdopen(read, "rb", 0)))
                files.append(its.enter_context(os.fdopen(write, "wb", 0)).fileno())
            words = list(map(str, command))
            self._child = _started(words, dict(enumerate(files)), env, cwd, limits)
            self._open = undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._open:
            self._child.__exit__(kind, error, traceback)

    def wait(self) -> Done:
        """Wait for the program's end; return its result."""
        until, code, said = time.monotonic() + _CLOCK * self._limit_s, None, ["", ""]
        with allowed(), suppress(RunsOnError):
            said = [_text(each) for each in _all_of(self._pipes, until)]
            code = self._child.wait(max(0.0, until - time.monotonic()))
        if code is None or code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
            raise TooLongError(
                f"{self._name} did not end within {self._limit_s:.0f} s of processor time "
                f"({_CLOCK * self._limit_s:.0f} s by the clock), and was killed"
            )
        return Done(code, *said)


def _all_of(pipes: Sequence[IO[bytes]], until: float) -> list[bytearray]:
    """Read pipes to their ends.

    Raises:
        RunsOnError: one is open at this time of the monotonic clock.
    """
    found = [bytearray() for _ in pipes]
    with selectors.DefaultSelector() as ready:
        for pipe, data in zip(pipes, found, strict=True):
            ready.register(pipe, selectors.EVENT_READ, data)
        while ready.get_map():
            if (left := until - time.monotonic()) <= 0:
                raise RunsOnError
            for key, _ in ready.select(left):
                if some := os.read(key.fd, _PIECE_BYTES):
                    key.data.extend(some)
                else:
                    ready.unregister(key.fileobj)
    return found


def _text(data: bytearray) -> str:
    """Return what a program has written as text, which the user's locale encodes."""
    return io.TextIOWrapper(io.BytesIO(data), errors="backslashreplace").read()


@contextmanager
def _nothing() -> Iterator[int]:
    file = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _started(
    words: Sequence[str],
    files: Mapping[int, int],
    env: Mapping[str, str],
    cwd: Path | None,
    limits: Mapping[int, tuple[int, int]],
    *,
    lasts: bool = False,
) -> Tool | _OwnChild:
    """Start a program beside this process, or else as its child; arguments are ``Tool``'s."""
    try:
        return Tool(words, files, env, _folder(cwd), limits, lasts=lasts)
    except OSError:  # it starts none, or is gone, or can't: then the error is this process's own
        return _OwnChild(words, files, env, cwd, limits, lasts=lasts)


def _folder(cwd: Path | None) -> str:
    return str(Path.cwd() if cwd is None else cwd.absolute())


class _OwnChild:
    """A program that is a child of this process; as ``Tool`` otherwise."""

    def __init__(
        self,
        words: Sequence[str],
        files: Mapping[int, int],
        env: Mapping[str, str],
        cwd: Path | None,
        limits: Mapping[int, tuple[int, int]],
        *,
        lasts: bool,
    ) -> None:
        self._lasts = lasts
        self._process = subprocess.Popen(  # noqa: S603
            [*(() if lasts else _mortal()), *words],
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            pass_fds=[each for each in files if each > 2],
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        for which, pair in limits.items():
            limit(self._process.pid, which, pair)

    def wait(self, seconds: float | None = None) -> int:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise RunsOnError from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._lasts:
            with suppress(
                ProcessLookupError, PermissionError
            ):  # it, and all it started, have ended
                os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_AFTER)


@cache
def _mortal() -> tuple[str, ...]:
    """Return the prefix of a command that has it die with this thread; () without ``setpriv``."""
    found = shutil.which("setpriv")
    if found is None:
        return ()
    tried = subprocess.run(  # noqa: S603
        [found, "--pdeathsig", "KILL", "true"], capture_output=True, check=False
    )
    return (found, "--pdeathsig", "KILL") if tried.returncode == 0 else ()
