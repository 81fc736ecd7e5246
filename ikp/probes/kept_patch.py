"""A cache on disk of verified patches and refusals of kernels, by cubin, options and sources.

A patch was verified when it was made. It is used again for the same cubin, options, sources of the
kernel and of ikp, and disassembler. Its cache entry is sealed, and has the hash of its machine
code, which lies where ``kept_code`` put it. Where any of that differs, the kernel is patched again.
Why a kernel was refused is kept in the same way.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ikp import caches
from ikp.core.segment import Selection
from ikp.errors import InspectError, PatchError
from ikp.paths import triton_cache
from ikp.probes.kept_code import files
from ikp.probes.made_patch import Patch
from ikp.sass.cubins.extra_argument import ExtraArgument
from ikp.sass.disassembly import sources
from ikp.sass.disassembly.tool_paths import tool
from ikp.verifier.declared import Declared

_ROOMS: Final = ("core", "sass", "probes", "verifier")
"""The folders whose files make and verify a patch, beside the modules above them."""


@dataclass(frozen=True, slots=True)
class KeptPatch:
    """The cache entry of one patch: its path, and the key that seals it."""

    path: Path
    key: bytes

    @classmethod
    def of(cls, cubin: bytes, name: str, options: Mapping[str, object]) -> KeptPatch | None:
        """Return the entry for what ``patch`` makes of a kernel with some options.

        None where the source of ikp, or the disassembler, can't be read.
        """
        try:
            said = repr((name, sorted(options.items()), _own_sources(), _disassembler()))
        except (OSError, InspectError):
            return None
        key = hashlib.sha256(cubin).digest() + said.encode()
        return cls(triton_cache() / f"ikp-patch-{hashlib.sha256(key).hexdigest()[:32]}.json", key)

    def read(self) -> Patch | str | None:
        """Return the patch, or why the kernel was refused; None where neither is kept intact."""
        with suppress(OSError, ValueError, TypeError, LookupError, AttributeError, PatchError):
            content = caches.kept(self.path, self.key)
            facts = None if content is None else json.loads(content)
            if isinstance(facts, dict):
                return _patch(facts)
            return facts if isinstance(facts, str) else None
        return None

    def write(self, found: Patch | str) -> None:
        """Keep a patch whose machine code is kept, or why a kernel was refused, if files allow."""
        with suppress(OSError):
            facts = found if isinstance(found, str) else _facts(found)
            caches.keep(self.path, self.key, json.dumps(facts).encode())


def prepare() -> None:
    """Find out what all entries' keys have in common, once in a process."""
    with suppress(OSError, InspectError):
        _own_sources()
        _disassembler()


def _facts(patch: Patch) -> dict[str, Any]:
    """Return a patch as JSON, but for its machine code.

    Raises:
        OSError: the machine code is not kept.
    """
    named = {each: sources.digest(each) for each in patch.sources}
    (cubin, *_), digests = _contents(patch.kept)
    if cubin != patch.cubin:
        raise OSError
    facts = _fields(patch)
    parts = {name: _fields(value) for name, value in facts.items() if is_dataclass(value)}
    del facts["cubin"]
    return facts | parts | {"sources": named, "files": digests}


def _fields(of: Any) -> dict[str, Any]:
    """Return the fields of a dataclass: ``asdict`` would copy thousands of places of code."""
    return {each.name: getattr(of, each.name) for each in fields(of)}


def _patch(facts: dict[str, Any]) -> Patch | None:
    """Return the patch of a cache entry; None where its files or sources differ by now.

    Raises:
        OSError: its machine code is not there.
    """
    named, known = facts.pop("sources"), facts.pop("files")
    (cubin, *_), digests = _contents(facts["kept"])
    if digests != known or any(sources.digest(file) != each for file, each in named.items()):
        return None
    made = {each: _tuples(value) for each, value in facts.items()}
    made |= {"cubin": cubin, "sources": tuple(named)}
    made["sample"], made["declared"] = Selection(**facts["sample"]), _declared(facts["declared"])
    made["argument"] = facts["argument"] and ExtraArgument(**facts["argument"])
    return Patch(**made)


def _contents(kept: str) -> tuple[list[bytes], list[str]]:
    """Return the kept machine code and the files beside it, and their SHA-256.

    Raises:
        OSError: one of them is not there.
    """
    contents = [each.read_bytes() for each in files(kept)]
    return contents, [hashlib.sha256(each).hexdigest() for each in contents]


def _declared(facts: dict[str, Any] | None) -> Declared | None:
    return None if facts is None else Declared.from_json(facts)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@cache
def _own_sources() -> str:
    """Return the hash of the source files of ikp that make a patch.

    Raises:
        OSError: they can't be read, as in an archive.
    """
    root, made = str(Path(caches.__file__).parent), hashlib.sha256()
    for path in sorted(own_files(root)):
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            content = file.read()
        made.update(f"{path[len(root) :]}\0{len(content)}\0".encode() + content)
    return made.hexdigest()


def own_files(root: str) -> Iterator[str]:
    """Yield the files of ikp that make a patch: every run reads them, so no ``Path`` is made."""
    with os.scandir(root) as entries:
        yield from (each.path for each in entries if each.name.endswith(".py"))
    for room in _ROOMS:
        for folder, _, names in os.walk(f"{root}/{room}"):
            yield from (f"{folder}/{each}" for each in names if each.endswith((".py", ".forms")))


@cache
def _disassembler() -> tuple[str, int, int]:
    """Return the disassembler's path, size and time of change.

    Raises:
        InspectError: there is none.
    """
    found = (path := tool("nvdisasm")).stat()
    return str(path), found.st_size, found.st_mtime_ns
