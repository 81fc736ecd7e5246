"""Child processes of ikp, compilers and NVIDIA's tools, with limits on their time.

A tool that is given odd bytes can spin for ever. So each has a limit of processor time, which the
Linux kernel enforces even if this process dies, and four times as long by the clock. It leads a
process group of its own, which is killed when the wait for it ends: at the limit, or when a signal
handler of the program raises. It dies with the thread that started it, if the system has
``setpriv``: Python's ``preexec_fn`` would do that, too, but can block in programs with threads, and
costs a copy of the page tables.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from ikp.signals import allowed

_CLOCK: Final = 4
"""Seconds by the clock for each second of processor time: other processes run, too."""
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


class _ChildProcess:
    def __init__(self, command: Sequence[str | Path], limit_s: float, cwd: Path | None) -> None:
        self._name, self._limit_s = str(command[0]), limit_s
        if shutil.which(self._name) is None:
            raise FileNotFoundError(f"there is no program {self._name}")
        self._process = subprocess.Popen(  # noqa: S603
            [*_mortal(), *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            cwd=cwd,
            env={**os.environ, "IKP_FOLLOW": "0"},  # no part of the program
            process_group=0,
        )
        whole = max(1, round(limit_s))
        with suppress(OSError, ValueError):  # it has ended; or its limit is lower already
            # A second more until SIGKILL, so that SIGXCPU ends it, which only this limit sends.
            resource.prlimit(self._process.pid, resource.RLIMIT_CPU, (whole, whole + 1))
            resource.prlimit(self._process.pid, resource.RLIMIT_CORE, (0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError, PermissionError):  # it and all it started have ended
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_AFTER)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def wait(self) -> Done:
        """Wait for the program's end; return its result."""
        out = said = ""
        with allowed(), suppress(subprocess.TimeoutExpired):
            out, said = self._process.communicate(timeout=_CLOCK * self._limit_s)
        code = self._process.returncode
        if code is None or code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
            raise TooLongError(
                f"{self._name} did not end within {self._limit_s:.0f} s of processor time "
                f"({_CLOCK * self._limit_s:.0f} s by the clock), and was killed"
            )
        return Done(code, out, said)


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
