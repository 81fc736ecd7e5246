"""Cubins and PTX of kernels that Triton compiled, Gluon's among them: of an object or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ikp.backends.triton.gpu_targets import last_text
from ikp.errors import InspectError, UsageError
from ikp.plugins import Image


def _with_records(kernel: Any) -> Path | None:
    """Return the path of the kernel's patched cubin, if it was launched with probes."""
    code = sys.modules.get(f"{__package__}.unedited._machine_code")
    path = Path(code.kept(kernel)) if code else None
    return path if path and path.suffix and path.exists() else None


def image(kernel: Any) -> Image | None:
    """Return the cubin of the kernel that a launch returned; None of other objects than Triton's.

    Raises:
        InspectError: it is not for an NVIDIA GPU.
        UsageError: the kernel is not compiled yet.
    """
    asm = getattr(kernel, "asm", None)
    if not isinstance(asm, Mapping):
        if hasattr(kernel, "arg_names") and hasattr(kernel, "run"):
            raise UsageError(
                "this kernel is not compiled yet. Inspect what launching it returns: "
                "ikp.inspect(kernel[grid](...))."
            )
        return None
    if "cubin" not in asm:
        raise InspectError(
            f"this kernel has no machine code for an NVIDIA GPU (it has: {', '.join(asm)}). "
            f"ikp inspect reads cubins only.{_shown(asm)}"
        )
    name = getattr(kernel, "name", "") or "a compiled kernel"
    if (code := _with_records(kernel)) is not None:
        ptx = code.with_suffix(".ptx").read_text(encoding="utf-8")
        return Image(code.read_bytes(), ptx, str(code))
    return Image(bytes(asm["cubin"]), str(asm.get("ptx", "")), str(name))


def _shown(asm: Mapping[str, object]) -> str:
    """Return where the instructions of a kernel for other GPUs can be read."""
    stage = last_text({f".{name}" for name in asm}).removeprefix(".")
    return f" compiled.asm[{stage!r}] shows the instructions; stores are named." if stage else ""


def at(path: Path) -> Image:
    """Return the machine code in a file of Triton's cache, whose PTX lies beside it."""
    ptx = path.with_suffix(".ptx").read_text(encoding="utf-8", errors="replace")
    return Image(path.read_bytes(), ptx, str(path), shared=_shared(path.with_suffix(".json")))


def _shared(path: Path) -> int | None:
    """Return the shared memory of a block, from the metadata that Triton keeps beside the code."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["shared"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, int) else None
