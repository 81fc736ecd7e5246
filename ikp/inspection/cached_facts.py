"""``CodeFacts`` of a cubin's kernels, cached on disk: a disassembler takes a second.

A file for each cubin and its names; who can't write it computes it again.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from ikp import caches
from ikp.core.code_facts import CodeFacts, parse_facts
from ikp.inspection.summary_of_code import code_facts
from ikp.paths import triton_cache
from ikp.plugins import Image
from ikp.sass.dataflow.lane_state import Shape
from ikp.version import __version__


def cached_facts(image: Image, shape: Shape) -> list[CodeFacts]:
    """Return what is known of an image's kernels; see ``code_facts``, which raises the same."""
    path, key = _place(image, shape)
    known = _read(path, key)
    if known is None:
        known = list(code_facts(image, shape).values())
        _write(path, key, known)
    return known


def _place(image: Image, shape: Shape) -> tuple[Path, bytes]:
    said = f"{__version__}\0{image.shared}\0{shape}\0{image.ptx}".encode()
    key = image.cubin + said
    name = hashlib.sha256(key).hexdigest()[:16]
    return triton_cache() / f"ikp-facts-{name}.json", key


def _read(path: Path, key: bytes) -> list[CodeFacts] | None:
    content = caches.kept(path, key)
    try:
        found = [parse_facts(text) for text in json.loads(content)] if content else [None]
    except (ValueError, TypeError):
        return None
    whole = [each for each in found if each is not None]
    return whole if len(whole) == len(found) else None


def _write(path: Path, key: bytes, facts: list[CodeFacts]) -> None:
    with suppress(OSError):
        caches.keep(path, key, json.dumps([each.text() for each in facts]).encode())
