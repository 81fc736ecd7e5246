"""Allocation of ikp's scalar registers in the assembly of a kernel for an AMD GPU.

Assembly may name a register by a symbol: ``s[ikp_cur]``. The code that ``_ir`` has inserted into
a kernel does. The symbols become the registers after those that LLVM allocated, and the kernel asks
the hardware for so many more. A wave has 102. To use all of them costs no occupancy by itself on
the GPUs that ikp knows, where vector registers and shared memory bound it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ikp.plugins import KernelError

NAMES = ("ikp_low", "ikp_high", "ikp_save", "ikp_save_high", "ikp_cur", "ikp_lim", "ikp_base")
"""In this order, from an even number on: ``low`` and ``high``, and both of ``save``, are pairs."""
MOST = 102
LIMIT = MOST - len(NAMES) - 1
"""How many LLVM may take where ikp needs room."""

_FREE = re.compile(r"(\.amdhsa_next_free_sgpr\s+)(.*)")
_COUNT = re.compile(r"(\.sgpr_count:\s+)(\d+)")


def reserve(text: str, compile_again: Callable[[int], str]) -> str:
    """Return a kernel's assembly with numbers for the registers that ikp's code names.

    Args:
        text: the assembly of one kernel.
        compile_again: returns it compiled with at most so many scalar registers of its own.

    Raises:
        KernelError: there is no room, or the kernel calls functions with registers of their own.
    """
    if "ikp_cur" not in text:
        return text
    first = _first_free(text)
    if first + len(NAMES) > MOST:
        text = compile_again(LIMIT)
        first = _first_free(text)
    if first + len(NAMES) > MOST:
        raise KernelError(
            f"no room to record: the kernel takes {first} of {MOST} scalar registers, also when "
            f"asked to leave {len(NAMES)}. Split it, or give it None for the buffer."
        )
    return _numbered(text, first)


def _first_free(text: str) -> int:
    """Return the first even register that the kernel does not use."""
    found = _FREE.search(text)
    if found is None or not found[2].strip().isdigit():
        raise KernelError(
            "this kernel calls functions that its compiler did not inline, and what registers they "
            "take is not known here. Leave out tl.device_print and tl.device_assert, or give the "
            "kernel None for the buffer."
        )
    return -(-int(found[2]) // 2) * 2


def _numbered(text: str, first: int) -> str:
    symbols = "".join(f"\t.set {name}, {first + at}\n" for at, name in enumerate(NAMES))
    taken = first + len(NAMES)
    before = int(_FREE.search(text)[2])  # type: ignore[index]
    text = _FREE.sub(rf"\g<1>{taken}", text)
    text = _COUNT.sub(lambda found: f"{found[1]}{int(found[2]) + taken - before}", text)
    return symbols + text
