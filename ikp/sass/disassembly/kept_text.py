"""What NVIDIA's disassembler printed, kept beside Triton's cache.

It takes some tenths of a second to begin, whatever it reads: longer than all that is done with its
text. A text belongs to the build of the disassembler, its options and the file's bytes, to nothing
of ikp's. Machine code is changed by what it says: one that is cut, another file's or another user's
is as good as none. Where none can be kept or read, it is printed again.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ikp import caches
from ikp.paths import triton_cache

_FAST = 1
"""Of zlib's levels, the one that takes milliseconds; texts become a tenth as long all the same."""


@dataclass(frozen=True, slots=True)
class KeptText:
    """One text's place."""

    path: Path
    key: bytes

    @classmethod
    def of(cls, version: str, options: Sequence[str], digest: bytes) -> KeptText:
        """Return that of what a build of the disassembler prints of a cubin with some options.

        Args:
            version: the build.
            options: what it is asked for.
            digest: the SHA-256 of the cubin.
        """
        key = "\0".join([version, *options, ""]).encode() + digest
        name = hashlib.sha256(key).hexdigest()[:32]
        return cls(triton_cache() / f"ikp-text-{name}.z", key)

    def read(self) -> str | None:
        """Return the text; None where there is none that is whole."""
        with suppress(zlib.error, UnicodeDecodeError):
            content = caches.kept(self.path, self.key)
            return None if content is None else zlib.decompress(content).decode()
        return None

    def write(self, text: str) -> None:
        """Keep a text, if that can be."""
        with suppress(OSError):
            caches.keep(self.path, self.key, zlib.compress(text.encode(), _FAST))
