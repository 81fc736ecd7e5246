"""Source files that a cubin's line tables name: their lines, digests and Python syntax trees.

A cubin may come from anywhere, and its line tables may name a device, a pipe, a file of any size,
or text that no compiler takes. Its source is then unknown.
"""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache

from ikp.named_files import MOST_SOURCE, read_named


def syntax(file: str) -> ast.Module | None:
    """Return the syntax tree of a file of Python; None where it can't be read or parsed."""
    try:
        return ast.parse(read_named(file, MOST_SOURCE))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # compiled elsewhere, changed since, of another language, or nested too deep


def text_lines(file: str) -> tuple[str, ...]:
    """Return the lines of a file; none where it can't be read."""
    return _read(file)[0]


def digest(file: str) -> str:
    """Return the SHA-256 of the content of ``text_lines``; "" where it can't be read."""
    return _read(file)[1]


@lru_cache(maxsize=64)
def _read(file: str) -> tuple[tuple[str, ...], str]:
    try:
        content = read_named(file, MOST_SOURCE)
        return tuple(content.decode().splitlines()), hashlib.sha256(content).hexdigest()
    except (OSError, ValueError):
        return (), ""
