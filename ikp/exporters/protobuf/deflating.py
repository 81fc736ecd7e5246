"""Deflate, with the same bytes each time."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

RAW: Final = -15
"""Window bits of bytes without zlib's header and checksum."""
_FAST: Final = 1
"""Levels above are slower, and gain little where rows are so much alike."""


def deflated(content: bytes | NDArray[np.uint8], window_bits: int = RAW) -> bytes:
    """Return bytes deflated; with zlib's header and checksum where ``window_bits`` is positive.

    As a stream: what isal's functions for one piece return differs from thread to thread (1.9.1).
    """
    from isal import isal_zlib

    stream = isal_zlib.compressobj(_FAST, isal_zlib.DEFLATED, window_bits)
    return bytes(stream.compress(content) + stream.flush())
