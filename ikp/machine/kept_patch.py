"""Patches that are kept: a kernel that was recorded before is patched by none of ikp's code.

A patch was verified when it was made. It is used again for the same cubin, options, sources of the
kernel and of ikp, and disassembler; what is kept of it is sealed, and has the hash of its machine
code, which lies where ``kept_code`` put it. Where any of that differs, the kernel is patched again.
Why a kernel was refused is kept in the same way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from ikp import caches
from ikp.core.segment import Selection
from ikp.errors import InspectError, PatchError
from ikp.machine.cubins.added_parameter import Argument
from ikp.machine.disassembly import sources, tools
from ikp.machine.kept_code import whole
from ikp.machine.made_patch import Patch
from ikp.paths import triton_cache
from ikp.verifier.declared import Declared

_ROOMS: Final = ("*.py", "core/**/*.py", "machine/**/*.py", "verifier/**/*.py")
"""The files of ikp's that a patch is made and verified by."""


@dataclass(frozen=True, slots=True)
class KeptPatch:
    """One patch's place."""

    path: Path
    key: bytes

    @classmethod
    def of(cls, cubin: bytes, name: str, options: Mapping[str, object]) -> KeptPatch | None:
        """Return that of what ``patch`` makes of a kernel with some options.

        None where it can't be told what makes it: the source of ikp, or a disassembler.
        """
        try:
            said = repr((name, sorted(options.items()), _own_sources(), _disassembler()))
        except (OSError, InspectError):
            return None
        key = hashlib.sha256(cubin).digest() + said.encode()
        return cls(triton_cache() / f"ikp-patch-{hashlib.sha256(key).hexdigest()[:32]}.json", key)

    def read(self) -> Patch | str | None:
        """Return the patch, or why the kernel was refused; None where neither is known for sure."""
        with suppress(OSError, ValueError, TypeError, LookupError, AttributeError, PatchError):
            content = caches.kept(self.path, self.key)
            facts = None if content is None else json.loads(content)
            if isinstance(facts, dict):
                return _patch(facts)
            return facts if isinstance(facts, str) else None
        return None

    def write(self, found: Patch | str) -> None:
        """Keep a patch whose machine code is kept, or why a kernel was refused, if that can be."""
        if isinstance(found, str) or whole(found.kept):
            facts = found if isinstance(found, str) else _facts(found)
            with suppress(OSError):
                caches.keep(self.path, self.key, json.dumps(facts).encode())


def _facts(patch: Patch) -> dict[str, Any]:
    facts = asdict(replace(patch, cubin=b"", sources=()))
    digests = {each: sources.digest(each) for each in patch.sources}
    return facts | {"cubin": hashlib.sha256(patch.cubin).hexdigest(), "sources": digests}


def _patch(facts: dict[str, Any]) -> Patch | None:
    """Return the patch that some facts tell of; None where it is another one by now.

    Raises:
        OSError: its machine code is not there.
    """
    digest, files = facts.pop("cubin"), facts.pop("sources")
    if any(sources.digest(file) != known for file, known in files.items()):
        return None
    cubin = Path(facts["kept"]).read_bytes() if whole(facts["kept"]) else b""
    if hashlib.sha256(cubin).hexdigest() != digest:
        return None
    made = {each: _tuples(value) for each, value in facts.items()}
    made["sample"], made["declared"] = Selection(**facts["sample"]), _declared(facts["declared"])
    made["argument"] = facts["argument"] and Argument(**facts["argument"])
    return Patch(cubin=cubin, sources=tuple(files), **made)


def _declared(facts: dict[str, Any] | None) -> Declared | None:
    return None if facts is None else Declared.from_json(facts)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@cache
def _own_sources() -> str:
    """Return the hash of all that a patch is made by.

    Raises:
        OSError: it can't be read, as in an archive.
    """
    root, made = Path(caches.__file__).parent, hashlib.sha256()
    made.update((root / "caches.py").read_bytes())
    for path in sorted({path for room in _ROOMS for path in root.glob(room)}):
        content = path.read_bytes()
        made.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)
    return made.hexdigest()


@cache
def _disassembler() -> tuple[str, int, int]:
    """Return which file the disassembler is.

    Raises:
        InspectError: there is none.
    """
    found = (path := tools.tool("nvdisasm")).stat()
    return str(path), found.st_size, found.st_mtime_ns
