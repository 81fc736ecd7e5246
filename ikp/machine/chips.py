"""The chips whose machine code records can be put into, and how each differs from sm_90.

Most of what ikp inserts is the same on all of them, bit for bit. What is not was taken from what
``ptxas`` makes for that chip.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ikp.errors import PatchError
from ikp.machine.assembler import NEVER, Step
from ikp.machine.attributes import Code
from ikp.machine.cubin import Kernel
from ikp.machine.encodings import NARROW
from ikp.machine.forms import RZ, Forms


class State(Enum):
    """What is known of records on a chip."""

    RUN = "run"  # on such a chip, and what came out was right
    COMPILED = "compiled"  # its words are those of ptxas and read back; nobody ran them


@dataclass(frozen=True, slots=True)
class Places:
    """Where a chip keeps what the entry reads: offsets in the constant bank 0."""

    block: int  # threads of a block: x, y, z
    grid: int  # blocks: x, y, z
    grid_id: int
    descriptor: int  # of global memory
    parameters: int  # the kernel's own; its cubin says so, too


class _Ampere(Forms):
    """sm_80 to sm_89."""

    far = NARROW

    def add(self, into: int, source: int, value: int) -> Step:
        """Add a constant, to zero as well: the chip adds three numbers."""
        return _recoded(super().add(into, source, value), 0x810, high=0x07FFE0FF)

    def to_uniform(self, into: int, source: int) -> Step:
        """Copy a register to a uniform one: it is done when it is done."""
        return _recoded(super().to_uniform(into, source), 0x3C2, time=NEVER)


class _Blackwell(Forms):
    """sm_100 and sm_103: more uniform registers; constants come when they come."""

    no_uniform = 255

    def constant(self, into: int, bank: int, offset: int, *, pair: bool = False) -> Step:
        """Read 4 or 8 bytes of a constant bank into uniform registers."""
        step = super().constant(into, bank, 0, pair=pair)
        step = _recoded(step, 0x7AC, high=step.high | 0x08000000, time=NEVER)
        return replace(step, low=step.low | self.no_uniform << 24 | offset << 37)

    def count_up(self, address: int, offset: int, value: int, descriptor: int) -> Step:
        """Add a register to a word of global memory, atomically."""
        step = super().count_up(address, offset, value, descriptor)
        return replace(step, high=step.high ^ 0x00020080)


class _SmallBlackwell(_Blackwell):
    """sm_120: it adds two numbers, and moves what the others multiply."""

    def immediate(self, into: int, value: int) -> Step:
        """Set a register."""
        return _moved(super().immediate(into, value), 0x802)

    def copy(self, into: int, source: int) -> Step:
        """Copy a register."""
        step = super().copy(into, source)
        return _moved(replace(step, low=step.low & _NO_SOURCES | source << 32), 0x202)

    def from_uniform(self, into: int, source: int) -> Step:
        """Copy a uniform register to a thread's own."""
        return _moved(super().from_uniform(into, source), 0xC02, high=0x08000F00)

    def add(self, into: int, source: int, value: int) -> Step:
        """Add a constant."""
        return _recoded(super().add(into, source, value), 0x835, high=0x078E0000)

    def sum_of(self, into: int, source: int, other: int) -> Step:
        """Add two registers."""
        return _recoded(super().sum_of(into, source, other), 0x235, high=0x078E0000)

    def subtract_uniform(self, into: int, source: int, uniform: int) -> Step:
        """Subtract a uniform register."""
        step = super().subtract_uniform(into, source, uniform)
        return _recoded(step, 0xC35, high=0x0F8E0000)


def _recoded(step: Step, opcode: int, *, high: int | None = None, time: int | None = None) -> Step:
    """Return a step with another opcode of 12 bits, and another upper half or time."""
    return replace(
        step,
        low=step.low & ~0xFFF | opcode,
        high=step.high if high is None else high,
        time=step.time if time is None else time,
    )


def _moved(step: Step, opcode: int, high: int = 0xF00) -> Step:
    """Return a MOV in the place of a multiplication by zero, which names a first factor."""
    return _recoded(replace(step, low=step.low & ~(RZ << 24)), opcode, high=high)


_NO_SOURCES = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip, as far as records need to know it."""

    name: str
    state: State
    forms: Forms
    places: Places
    warps: int = 64  # that an SM has room for
    uniforms: int = 63  # registers that code may use: as many as ptxas was seen to use

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever records on it is to know."""
        if self.state is State.RUN:
            return ()
        return (f"records on {self.name} were never run by ikp's makers: compare results.",)


_EARLY = Places(block=0x0, grid=0xC, grid_id=0x30, descriptor=0x118, parameters=0x160)
_LATE = Places(block=0x360, grid=0x370, grid_id=0x140, descriptor=0x358, parameters=0x380)

HOPPER: Final = Chip(
    "sm_90", State.RUN, Forms(), replace(_EARLY, descriptor=0x208, parameters=0x210)
)
_CHIPS: Final = {
    80: Chip("sm_80", State.COMPILED, _Ampere(), _EARLY),
    86: Chip("sm_86", State.COMPILED, _Ampere(), _EARLY, warps=48),
    89: Chip("sm_89", State.COMPILED, _Ampere(), _EARLY, warps=48),
    90: HOPPER,
    100: Chip("sm_100", State.COMPILED, _Blackwell(), _LATE, uniforms=80),
    103: Chip("sm_103", State.COMPILED, _Blackwell(), _LATE, uniforms=80),
    120: Chip("sm_120", State.COMPILED, _SmallBlackwell(), _LATE, warps=48, uniforms=80),
}
CHIPS: Final = tuple(_CHIPS.values())
"""Those that are known, the oldest first."""
UNTESTED: Final = "IKP_UNTESTED_CHIPS"
"""In the environment, not 0: records also for chips on which they were never run."""


def untested_asked() -> bool:
    """Return whether the environment asks for chips on which records were never run."""
    return os.environ.get(UNTESTED, "0") not in ("", "0")


def chip_of(sm: int, kernel: Kernel, *, untested: bool = False) -> Chip:
    """Return the chip that a kernel is for.

    Args:
        sm: its number, 90 for sm_90.
        kernel: one of a cubin for it.
        untested: whether chips will do, too, on which records were never run.

    Raises:
        PatchError: it is not known, or the kernel doesn't find its constants where others do.
    """
    chip = _CHIPS.get(sm)
    if chip is None:
        known = ", ".join(each.name for each in CHIPS)
        raise PatchError(f"{kernel.name} is for sm_{sm}: records are known for {known} alone.")
    if chip.state is not State.RUN and not untested:
        raise PatchError(
            f"{kernel.name} is for {chip.name}: records are made for it as its assembler writes "
            f"code, but ikp was never run on such a chip. Set {UNTESTED}=1 to try, and compare "
            "the kernel's results with those of a plain run."
        )
    if (stands := _parameters(kernel)) not in (None, chip.places.parameters):
        raise PatchError(
            f"{kernel.name} has its parameters at {stands:#x} in its constants, not at "
            f"{chip.places.parameters:#x} as every known one of {chip.name}: what else stands "
            "where is not known."
        )
    return chip


def _parameters(kernel: Kernel) -> int | None:
    """Return where a kernel's parameters stand in the constant bank 0, if it says so."""
    found = (each.words[1] & 0xFFFF for each in kernel.attributes if each.code == Code.PARAM_CBANK)
    return next(found, None)
