"""A progress bar on stderr for work that lasts more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from ikp.terminal import printable

if TYPE_CHECKING:
    from rich.progress import Progress

_Chunk = TypeVar("_Chunk")

_DELAY_S = 1.0
"""The time after which a bar appears."""
_AGAIN_S = 0.1
"""The least time between two updates of a bar."""


def track(
    chunks: Iterable[_Chunk], total: int, description: str, *, force: bool = False
) -> Iterator[_Chunk]:
    """Yield ``chunks``, of which there are ``total``, and show their progress.

    A bar appears on stderr once the work has lasted a second, if stderr is a terminal or
    ``force`` is true. It is removed when the work ends, by an exception too.
    """
    with progress(total, description, force=force) as advance:
        for chunk in chunks:
            yield chunk
            advance(1)


@contextmanager
def progress(
    total: int, description: str, *, force: bool = False
) -> Iterator[Callable[[float], None]]:
    """Show, as :func:`track` does, how much of ``total`` is done.

    It yields a function to call with the amount done since the last call.
    """
    if not (force or _is_terminal()):
        yield lambda _: None
        return
    due = time.monotonic() + _DELAY_S
    bar: Progress | None = None
    done = 0.0

    def advance(more: float) -> None:
        nonlocal bar, due, done
        done += more
        if (now := time.monotonic()) > due:
            due = now + _AGAIN_S
            bar = bar or _show(description, total, force)
            bar.update(bar.task_ids[0], completed=done, refresh=True)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def _is_terminal() -> bool:
    """Return whether stderr is a terminal, and not a program's own stream that only claims so."""
    stream = sys.__stderr__
    return stream is not None and stream is sys.stderr and stream.isatty()


def _show(description: str, total: int, force: bool) -> Progress:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    console = Console(stderr=True, force_terminal=force or None)
    # Without auto_refresh, which needs a thread: Python at exit can't start one (3.12).
    bar = Progress(console=console, transient=True, auto_refresh=False)
    bar.add_task(escape(printable(description)), total=total)  # names in it are no markup
    bar.start()
    return bar
