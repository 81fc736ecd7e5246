"""What one attempt may take: seconds, and memory beside what the process has."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SECONDS = 20
"""Of one attempt, on a machine that does other things as well."""
BYTES = 1 << 30


class TooLongError(BaseException):
    """An attempt that takes too long: nothing that catches exceptions may catch it."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise what is no refusal where the code under test takes more.

    Raises:
        TooLongError: it took more than ``SECONDS``.
        MemoryError: it asked for more than ``BYTES``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TooLongError(f"it took more than {SECONDS} s")
