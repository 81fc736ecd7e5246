"""Cubins and PTX of kernels that CuTe compiled: of one function, or the files that CuTe kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ikp.errors import InspectError
from ikp.plugins import Image


def image(kernel: Any) -> Image | None:
    """Return the machine code of a compiled function; None of other objects than CuTe's.

    Raises:
        InspectError: CuTe did not keep it.
    """
    if not hasattr(kernel, "__cubin__"):
        return None
    if not kernel.__cubin__:
        raise InspectError(
            "CuTe did not keep this kernel's machine code. Compile it with "
            "cute.compile[cute.KeepPTX, cute.KeepCUBIN](...), or set CUTE_DSL_KEEP=ptx,cubin."
        )
    return Image(bytes(kernel.__cubin__), str(kernel.__ptx__ or ""), "a compiled CuTe kernel")


def kept_images() -> Iterator[Image]:
    """Yield the cubins that CuTe keeps on the user's request, with their PTX, the latest first.

    Where ``CUTE_DSL_KEEP`` names cubin and ptx, CuTe writes both into ``CUTE_DSL_DUMP_DIR``, or the
    working directory.

    Raises:
        InspectError: there is no such folder: CuTe makes none, and keeps nothing then.
    """
    if not {"cubin", "ptx"} <= {*os.environ.get("CUTE_DSL_KEEP", "").split(",")}:
        return
    folder = Path(os.environ.get("CUTE_DSL_DUMP_DIR") or ".")
    if not folder.is_dir():
        raise InspectError(
            f"CUTE_DSL_DUMP_DIR names {folder}, which is no folder: CuTe makes none, and kept no "
            "machine code. Make it before the program starts."
        )
    files = (path for path in folder.glob("*.cubin") if path.with_suffix(".ptx").exists())
    for path in sorted(files, key=lambda path: -path.stat().st_mtime):
        ptx = path.with_suffix(".ptx").read_text(encoding="utf-8", errors="replace")
        yield Image(path.read_bytes(), ptx, str(path))
