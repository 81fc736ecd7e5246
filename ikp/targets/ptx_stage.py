"""Whether a kernel's shared memory leaves room for the stage of records."""

from __future__ import annotations

import re

from ikp.errors import KernelError

_STAGE = re.compile(r"\.b8 ikp_stage\[(\d+)\];")
_TARGET = re.compile(r"^\.target sm_(\d+)", re.MULTILINE)
_MOST = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}
"""KiB of shared memory that a block may have, by compute capability (CUDA programming guide)."""


def check_room(text: str, shared: int) -> None:
    """Refuse a kernel whose own ``shared`` bytes and the stage in its PTX are together too many.

    Raises:
        KernelError: they are.
    """
    stage, target = _STAGE.search(text), _TARGET.search(text)
    if stage is None or target is None or int(target[1]) not in _MOST:
        return
    most = _MOST[int(target[1])] << 10
    if shared + int(stage[1]) > most:
        raise KernelError(
            f"no room to stage records: the kernel itself takes {shared} bytes of shared memory, "
            f"shared_bytes={stage[1]} more are asked for, and a block of sm_{target[1]} may have "
            f"{most}. At most shared_bytes={max(0, most - shared) // 16 * 16} fits; 0 records "
            "straight to the buffer."
        )
