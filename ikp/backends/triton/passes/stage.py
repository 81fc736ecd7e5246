"""The stage of records in a kernel whose shared memory somebody else lays out.

``init`` declares the stage as a variable of its own, which the linker places beside the kernel's
other shared memory. Triton launches with the size of the one block that it laid out itself, and
takes no other into account: there, the stage has to be the end of that block, and be counted.
"""

from __future__ import annotations

import re

from ikp.core import abi
from ikp.errors import KernelError

_STAGE = re.compile(r"\.shared \.align \d+ \.b8 ikp_stage\[(\d+)\];\n")
_USE = "mov.u32 ikp_base, ikp_stage;"
_BLOCK = "global_smem"
_DECLARATION = re.compile(rf"^\.extern \.shared [^\n]*\b{_BLOCK}\[\];", re.MULTILINE)
_TARGET = re.compile(r"^\.target sm_(\d+).*$", re.MULTILINE)
_ADDRESS_SIZE = re.compile(r"^\.address_size .*$", re.MULTILINE)
_MOST = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}
"""KiB of shared memory that a block may have, by compute capability (CUDA programming guide)."""


def extend(text: str, shared: int) -> tuple[str, int]:
    """Put the stage behind the kernel's own ``shared`` bytes.

    Returns:
        The PTX, and how many bytes of dynamic shared memory the kernel takes now.

    Raises:
        KernelError: a block can't have so much.
    """
    stage = _STAGE.search(text)
    if stage is None:
        return text, shared
    begin = -(-shared // abi.ALIGNMENT) * abi.ALIGNMENT
    total = begin + int(stage[1])
    _check_room(text, begin, int(stage[1]))
    use = f"mov.u32 ikp_base, {_BLOCK}; add.u32 ikp_base, ikp_base, {begin};"
    text = _STAGE.sub("", text).replace(_USE, use)
    if not _DECLARATION.search(text):
        declaration = f".extern .shared .align {abi.ALIGNMENT} .b8 {_BLOCK}[];"
        text = _ADDRESS_SIZE.sub(rf"\g<0>\n{declaration}", text, count=1)
    return text, total


def _check_room(text: str, own: int, stage: int) -> None:
    target = _TARGET.search(text)
    most = _MOST.get(int(target[1]), 0) << 10 if target else 0
    if most and own + stage > most:
        raise KernelError(
            f"no room to stage records: the kernel itself takes {own} bytes of shared memory, "
            f"shared_bytes={stage} more are asked for, and a block may have {most}. At most "
            f"shared_bytes={max(0, most - own) // abi.ALIGNMENT * abi.ALIGNMENT} fits; 0 records "
            "straight to the buffer."
        )
