"""``CodeFacts`` of the plain cubin, if kept: stack, spills, shared memory, limit of registers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ikp.named_files import MOST_CODE, read_named
from ikp.plugins import Image
from ikp.probes.kept_code import PLAIN
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import AttributeCode
from ikp.sass.cubins.cubin import Cubin, Kernel

_LOCAL = (0x383, 0x387, 0x983, 0x987)
"""Opcodes of LDL and STL."""
_OPCODE = 0xFFF
_MOST_REGISTERS = 255


def plain_facts(image: Image, name: str) -> dict[str, Any]:
    """Return the fields of ``CodeFacts`` that are of the plain kernel; none where it is not kept.

    Args:
        image: the image of the kernel with records.
        name: the kernel's.

    Raises:
        PatchError: the file is of a form that is not known.
    """
    cubin = Cubin.read(_plain(image))
    kernel = cubin.kernels.get(name)
    if kernel is None:
        return {}
    limit = next(
        (one.value for one in kernel.attributes if one.code == AttributeCode.MAXREG_COUNT), None
    )
    shared = cubin.elf.find(f".nv.shared.{name}")
    return {
        "local_bytes": _frame(cubin, kernel),
        "spills": int(sum(int(word) & _OPCODE in _LOCAL for word in kernel.words[:, 0].tolist())),
        "static_shared": shared.size if shared is not None else 0,
        "register_limit": limit if isinstance(limit, int) and limit < _MOST_REGISTERS else None,
    }


def _plain(image: Image) -> bytes:
    """Return the plain cubin that lies beside that with records, or else that with records."""
    try:
        return read_named(Path(image.origin).with_suffix(PLAIN), MOST_CODE)
    except (OSError, ValueError):
        return image.cubin


def _frame(cubin: Cubin, kernel: Kernel) -> int | None:
    """Return the bytes of a thread's stack."""
    info = cubin.elf.find(".nv.info")
    listed = attributes.parse(info.data) if info is not None else []
    frames = (each.numbers(2) for each in listed if each.code == AttributeCode.FRAME_SIZE)
    return next((size for symbol, size in frames if symbol == kernel.symbol), None)
