"""Writes a patched cubin, the plain one and PTX to Triton's cache, for ``inspect``, ``verify``.

They lie in a folder of their own. The PTX ends in a comment with what the cubin can't say: the
names of its ranges, and which instructions were inserted.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ikp.paths import put, triton_cache

if TYPE_CHECKING:
    from ikp.probes.made_patch import Patch

KEPT: Final = "machine code of "
"""The prefix of a trace's note on where the machine code of a kernel lies: the label follows."""
_NAME = 100
"""The most characters of a kernel's name in a file's name: those of C++ have no limit."""
MACHINE_MARK: Final = "// ikp.machine"
"""The prefix of the comment in the PTX with the facts on the patched cubin."""
DECLARED: Final = "declared"
"""The key of how the patched cubin differs from the plain one."""
PLAIN: Final = ".plain"
"""The suffix of the plain cubin, which is kept beside the patched one."""


def files(path: str) -> list[Path]:
    """Return the paths that ``keep`` writes: the patched cubin, the plain one and the PTX."""
    return [Path(path).with_suffix(each) for each in (".cubin", PLAIN, ".ptx")]


def keep(
    patch: Patch, name: str, ptx: str, shared: int | None = None, plain: bytes | None = None
) -> str:
    """Return the path of the cubin, written if it is not there; or why it could not be.

    Args:
        patch: the patched machine code.
        name: the kernel's.
        ptx: its PTX.
        shared: bytes of shared memory that a block has, where that is known.
        plain: the plain cubin, which ``ikp verify`` holds the patched one against.
    """
    folder = triton_cache() / f"ikp-{hashlib.sha256(patch.cubin).hexdigest()[:16]}"
    facts: dict[str, Any] = {
        "names": patch.names,
        "ours": patch.ours,
        "plain": patch.plain,
        "shared": shared,
        "registers": patch.registers,
    }
    if patch.declared is not None:
        facts[DECLARED] = patch.declared.to_json()
    said = json.dumps(facts)
    try:
        cubin = folder / f"{name[:_NAME]}.cubin"
        put(cubin, patch.cubin)
        if plain is not None:
            put(cubin.with_suffix(PLAIN), plain)
        put(cubin.with_suffix(".ptx"), f"{ptx.rstrip()}\n{MACHINE_MARK} {said}\n".encode())
    except OSError as error:
        return f"not kept: {error}"
    return str(cubin)
