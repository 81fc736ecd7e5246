"""Limits of an SM's register file: the most warps for a register count, and the reverse.

An SM has four parts (sm_70 to sm_120), each with a quarter of its registers and a quarter of its
warps: of a block of 19 warps, five are in one part. With 104 registers for each thread, only four
fit there, and the driver does not launch the block, though all its registers are fewer than 65,536.
"""

from __future__ import annotations

from typing import Final

PORTION: Final = 8
"""Registers are handed out to threads in portions."""
LANES: Final = 32
_PARTS: Final = 4
_IN_A_PART: Final = 16384


def warps_with(registers: int) -> int:
    """Return the most resident warps of an SM, by the registers of each thread."""
    return _IN_A_PART // (-(-registers // PORTION) * PORTION * LANES) * _PARTS


def most_registers_of(warps: int) -> int:
    """Return the most registers that each thread of a block may have, by the warps of the block."""
    return _IN_A_PART // (-(-warps // _PARTS) * LANES) // PORTION * PORTION
