"""Commands of ikp for an MCP server: each in a process of its own, with a limit on time and text.

The server's own stdin and stdout carry the protocol, so no command may have them. A command that
crashes, or is given a hostile file, ends its own process alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

ANSWER: Final = 16_000
"""Bytes of UTF-8 that an answer has at most."""
READING_S: Final = 120.0
"""Seconds for a command that reads files."""
_WRITING_S: Final = 30.0
"""Seconds that an interrupted program has to end in, and ikp to write its trace."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended: the ends of its outputs, in text."""

    code: int  # negative: the signal that ended it
    out: str
    said: str  # on stderr
    in_time: bool


def cut(text: str, limit: int = ANSWER, *, end: bool = False) -> str:
    """Return at most ``limit`` bytes of a text, in whole lines, and a line on what is left out.

    Args:
        text: any.
        limit: bytes of UTF-8, of the line on what is left out, too; 200 or more.
        end: keep the end of the text, not its beginning.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    room = limit - 120
    kept = data[-room:] if end else data[:room]
    if b"\n" in kept:
        kept = kept.partition(b"\n")[2] if end else kept.rpartition(b"\n")[0]
    note = f"[cut: {len(kept):,} of {len(data):,} bytes. Ask for less: a kernel, a region, top]"
    body = kept.decode("utf-8", "ignore")
    return f"{note}\n{body}" if end else f"{body}\n{note}"


async def ikp(
    words: Sequence[str], *, folder: Path | None = None, limit_s: float = READING_S
) -> Ended:
    """Run a command of ikp and return its exit code and output.

    The process and its children are killed where the caller is cancelled. After ``limit_s`` they
    are interrupted first, as by Ctrl-C, so that ``ikp run`` writes what it has.

    Args:
        words: the command and its arguments.
        folder: to run it in; None: the server's.
        limit_s: seconds by the clock.

    Raises:
        OSError: it can't be started.
        ValueError: a word holds a zero byte.
    """
    from anyio import CancelScope  # comes with mcp

    safe = [] if words[0] == "run" else ["-P"]  # a program finds the modules beside it; others not
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *safe, "-m", "ikp", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=said,
            cwd=folder,
            env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
            start_new_session=True,
        )
        try:
            in_time = await _ends(process, limit_s)
            if not in_time:
                _signal(process, signal.SIGINT)
                await _ends(process, _WRITING_S)
        finally:
            _signal(process, signal.SIGKILL)
            with CancelScope(shield=True):  # a cancelled call, too, leaves no child behind
                code = await process.wait()
        return Ended(code, _text(out), _text(said), in_time)


async def _ends(process: asyncio.subprocess.Process, limit_s: float) -> bool:
    try:
        await asyncio.wait_for(process.wait(), limit_s)
    except TimeoutError:
        return False
    return True


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to all that the process started and that is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _text(file: IO[bytes]) -> str:
    """Return what was written to a file; of a very long one, its end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 16 * ANSWER))
    return file.read().decode("utf-8", "replace")
