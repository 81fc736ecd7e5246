"""On-disk cache of nvdisasm's output, in the folder of Triton's cache.

The disassembler takes some tenths of a second to start, for any input: longer than all processing
of its text. The key is the disassembler's build, its options and the cubin's bytes; no part of it
is ikp's. Machine code is patched by this text, so a text that is cut, another file's or another
user's is not used. Where a text can't be kept or read, the disassembler runs again.
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
    """One entry of the cache: its file and its key."""

    path: Path
    key: bytes

    @classmethod
    def of(cls, version: str, options: Sequence[str], digest: bytes) -> KeptText:
        """Return the entry of one disassembly.

        Args:
            version: the build of the disassembler.
            options: its command-line options, and a function's name, if it prints only one.
            digest: the SHA-256 of the cubin.
        """
        key = "\0".join([version, *options, ""]).encode() + digest
        name = hashlib.sha256(key).hexdigest()[:32]
        return cls(triton_cache() / f"ikp-text-{name}.z", key)

    def read(self) -> str | None:
        """Return the text; None where there is none, or it is damaged."""
        with suppress(zlib.error, UnicodeDecodeError):
            content = caches.kept(self.path, self.key)
            return None if content is None else zlib.decompress(content).decode()
        return None

    def write(self, text: str) -> None:
        """Keep a text; without effect where the file can't be written."""
        with suppress(OSError):
            caches.keep(self.path, self.key, zlib.compress(text.encode(), _FAST))
