"""``FileExporter``: the base class of exporters that write one file, with checks and gzip."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from os import PathLike, fsdecode
from typing import TYPE_CHECKING, BinaryIO, cast

from ikp.core.trace import faults
from ikp.errors import ExportError
from ikp.paths import replacing
from ikp.plugins import INTERFACE

if TYPE_CHECKING:
    from ikp.core.trace import Trace


class FileExporter(ABC):
    """Writes any trace, of events or of totals, as one file."""

    interface = INTERFACE
    totals = True
    suffixes: tuple[str, ...]

    def write(self, trace: Trace, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write ``trace`` to ``path``: all of it, or nothing, and then an existing file stays.

        Raises:
            ExportError: the file exists and ``force`` is false, the path can't be written, or the
                trace contradicts itself.
            UsageError: the format is a table, and the trace has rows of two kinds.
        """
        check(trace)
        with replacing(path, force=force) as file:
            self._put(trace, file, fsdecode(path))

    @abstractmethod
    def _put(self, trace: Trace, file: BinaryIO, name: str) -> None:
        """Write a trace to an open file, which will be called ``name``."""


def check(trace: Trace) -> None:
    """Refuse a trace that contradicts itself: a file made of it would be garbage.

    Raises:
        ExportError: says what is wrong.
    """
    if found := faults(trace):
        raise ExportError(
            f"the trace can't be written, because it contradicts itself: {'; '.join(found)}. "
            "ikp's own decoder never makes such a trace: repair what built or changed it."
        )


@contextlib.contextmanager
def packed(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Yield the stream to write to, which compresses into ``file`` if ``name`` ends in ``.gz``."""
    if not name.endswith(".gz"):
        yield file
        return
    from isal import igzip

    with igzip.IGzipFile("", "wb", _FAST, file, mtime=0) as out:
        yield cast("BinaryIO", _Steady(out))


class _Steady:
    """Writes to a gzip file so that its bytes do not depend on where isal's stream lies in memory.

    isal (1.6 to 1.9.1) hashes the third byte of a stream with the stream's address, but not where
    bytes went before: so the first ones are compressed alone.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._alone = 8  # isal takes 4 to 16 without that third byte, and finds the first one again

    def write(self, content: bytes) -> int:
        """Write bytes; return how many those are."""
        size = len(content)
        if self._alone:
            first, content = content[: self._alone], content[self._alone :]
            self._out.write(first)
            self._alone -= len(first)
            if not self._alone:
                self._out.flush()
        self._out.write(content)
        return size


_FAST = 1
"""Levels above are slower, and gain little where rows are so much alike."""
