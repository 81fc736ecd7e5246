"""Source files that machine code names in its line tables, as far as they are there and readable.

A cubin may come from anywhere, and so may what it names: a device, a pipe, a file of any size, text
that no compiler takes. Nothing is then known of its source.
"""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache

from ikp.named_files import MOST_SOURCE, read_named


def syntax(file: str) -> ast.Module | None:
    """Return the syntax tree of a file of Python; None where it can't be had."""
    try:
        return ast.parse(read_named(file, MOST_SOURCE))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # compiled elsewhere, changed since, of another language, or nested too deep


def text_lines(file: str) -> tuple[str, ...]:
    """Return the lines of a file; none where it can't be read."""
    return _read(file)[0]


def digest(file: str) -> str:
    """Return the SHA-256 of the content that ``text_lines`` tells of; "" where it can't be read."""
    return _read(file)[1]


@lru_cache(maxsize=64)
def _read(file: str) -> tuple[tuple[str, ...], str]:
    try:
        content = read_named(file, MOST_SOURCE)
        return tuple(content.decode().splitlines()), hashlib.sha256(content).hexdigest()
    except (OSError, ValueError):
        return (), ""
