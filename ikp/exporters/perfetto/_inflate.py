"""Inflates what a file holds packed: piece by piece, and no further than its size explains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from os import PathLike
from typing import Final

from ikp.errors import ExportError
from ikp.exporters.protobuf.damage import DamagedError

_VARIABLE: Final = "IKP_INFLATE_MIB"
"""In the environment: read files that inflate to so many MiB, of any size themselves."""
_TIMES: Final = 256
LEAST: Final = 64 << 20
"""A file may inflate to ``LEAST`` bytes and ``_TIMES`` its own size. Columns take 3 times a file's
size, and where events repeat each other to the nanosecond, up to ``_TIMES``: their packets take
next to nothing, too. Deflate itself can do 1,000 times."""
PIECE: Final = 4 << 20
"""So many bytes are taken apart together."""


class Budget:
    """What reading one file may still take, in bytes."""

    def __init__(self, path: str | PathLike[str], size: int) -> None:
        self._path, self._size = path, size
        self.most = _asked(path) or LEAST + _TIMES * size
        self.left = self.most

    def take(self, count: int) -> None:
        """Count bytes as used.

        Raises:
            ExportError: that is more than the file's size explains.
        """
        self.left -= count
        if self.left < 0:
            raise ExportError(
                f"{self._path} has {self._size:,} bytes, and inflates to more than "
                f"{self.most >> 20:,} MiB, which no trace of ikp does: it is damaged, or made to "
                f"fill the memory. To read it all the same, set {_VARIABLE} to more in the "
                "environment."
            )


def _asked(path: str | PathLike[str]) -> int:
    text = os.environ.get(_VARIABLE, "0")
    if not text.isdecimal():
        raise ExportError(
            f"{path} was not read, because {_VARIABLE}={text!r} in the environment is no number of "
            "MiB: unset it, or give one."
        )
    return int(text) << 20


def inflated(packed: bytes, budget: Budget) -> Iterator[bytes]:
    """Yield the content of one packed part, in pieces.

    Raises:
        DamagedError: it is not whole.
        ExportError: it inflates to more than the budget has left.
    """
    from isal import isal_zlib

    inflater = isal_zlib.decompressobj(_ZLIB_BITS)
    try:
        while not inflater.eof:
            piece = inflater.decompress(packed, PIECE)
            packed = inflater.unconsumed_tail
            budget.take(len(piece))
            if not piece and not packed and not inflater.eof:
                raise DamagedError("a compressed part is cut off")
            yield piece
    except isal_zlib.error as error:
        raise DamagedError("a compressed part is damaged") from error
    if inflater.unused_data:
        raise DamagedError("a compressed part goes on behind its end")


_ZLIB_BITS: Final = 15
"""The window of zlib's format, with its header and checksum."""
