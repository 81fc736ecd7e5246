"""The machine code of kernels that CuTe compiled."""

from __future__ import annotations

from typing import Any

from ikp.errors import InspectError
from ikp.plugins import Image


def image(kernel: Any) -> Image | None:
    """Return the machine code of a compiled function; None of what is none of CuTe's.

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
