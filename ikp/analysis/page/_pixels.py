"""PNG pictures of one colour, as opaque at each pixel as a matrix of shares says."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from typing import Final

import numpy as np
from numpy.typing import NDArray

Shades = NDArray[np.uint8]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_PALETTE: Final = 3
COLOUR: Final = (0x3B, 0x7D, 0xEE)
"""The colour of all pixels: visible on white and on black."""


def shades(shares: NDArray[np.float64]) -> Shades:
    """Return shares of 0 to 1 as 0 to 255."""
    return np.asarray(np.rint(255 * np.clip(shares, 0, 1)), np.uint8)


def png(alpha: Shades) -> bytes:
    """Return a picture of one colour that is as opaque as each value says, a pixel each."""
    height, width = alpha.shape
    pixels = np.zeros((height, 1 + width), np.uint8)  # each line begins with its filter: none
    pixels[:, 1:] = alpha
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, _PALETTE, 0, 0, 0),
        b"PLTE": bytes(COLOUR) * 256,
        b"tRNS": bytes(range(256)),
        b"IDAT": zlib.compress(pixels.tobytes(), 9),
        b"IEND": b"",
    }
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks.items())


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def as_address(picture: bytes) -> str:
    """Return a ``data:`` address that holds the picture itself."""
    return f"data:image/png;base64,{b64encode(picture).decode()}"
