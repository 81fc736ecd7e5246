"""A fingerprint of everything that shapes device code.

Compile caches do not see this package: without it in the cache key, an upgraded (or edited) ikp
would silently run the old machine code.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_SOURCES = ("core/abi.py", "core/regions.py", "verbs", "targets", "backends", "unedited")


@cache
def revision() -> str:
    """Return 12 hex digits of the SHA-256 of the sources that generate device code."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for source in _SOURCES:
        path = root / source
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
