"""Keeps the machine code that is launched, so that ``ikp inspect`` finds it as it finds any other.

It goes into Triton's cache, in a folder of its own: a cubin, and beside it the kernel's PTX with
what the cubin can't say, the names of its ranges and which instructions were put in.
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
"""How a trace says where the machine code of a launch's kernel lies: the label follows."""
_NAME = 100
"""Characters of a name that a file is called by: those of C++ have no limit."""
MACHINE_MARK: Final = "// ikp.machine"
"""What stands in front of what the PTX beside it says of it."""
DECLARED: Final = "declared"
"""The key of how it differs from the plain cubin."""
PLAIN: Final = ".plain"
"""How the name of the plain cubin ends, which is kept beside it."""


def files(path: str) -> list[Path]:
    """Return the cubin of ``keep``, and what it puts beside it."""
    return [Path(path).with_suffix(each) for each in (".cubin", PLAIN, ".ptx")]


def keep(
    patch: Patch, name: str, ptx: str, shared: int | None = None, plain: bytes | None = None
) -> str:
    """Return the path of the cubin, written if it is not there; or why it could not be.

    Args:
        patch: the machine code.
        name: the kernel's.
        ptx: its PTX.
        shared: bytes of shared memory that a block has, where that is known.
        plain: the cubin that was patched, which ``ikp verify`` holds the other one against.
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
