"""Supported chips, sm_80 to sm_120: how encodings and constant banks differ from those of sm_90.

Sequences of instructions are written for sm_90 (``forms``). Most encodings are the same on all
chips, bit for bit; ``Chip.fitted`` replaces the others by the chip's own, as ``ptxas`` writes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from ikp.errors import PatchError
from ikp.sass.assembly.assembler import NEVER, PT, Resource, Step
from ikp.sass.assembly.forms import RZ, URZ
from ikp.sass.cubins.attributes import AttributeCode
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.instruction import NARROW, WIDE, DistanceField

UNTESTED: Final = "IKP_UNTESTED_CHIPS"
"""Environment variable; not 0: insert code also for chips on which it was never run."""


def untested_asked() -> bool:
    """Return whether the environment asks for chips on which records were never run."""
    return os.environ.get(UNTESTED, "0") not in ("", "0")


Change = Callable[[Step, Sequence[int]], list[Step]]
"""Returns a chip's own instructions for one of sm_90's, by it and the registers that are free."""


class State(Enum):
    """How far inserted code is tested on a chip."""

    RUN = "run"  # it ran on such a chip, with right results
    COMPILED = "compiled"  # its words are those of ptxas and read back; they never ran


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip, as far as inserted code depends on it."""

    name: str
    state: State
    parameters: int  # offset of kernel parameters in the constant bank 0; the cubin has it, too
    places: Mapping[int, int] = field(default_factory=dict)  # sm_90's in that bank -> this one's
    changes: Mapping[int, Change] = field(default_factory=dict)  # by sm_90's opcodes
    far: DistanceField = WIDE  # the field of a branch's distance
    late: bool = False  # whether R2UR and the election of a thread take a scoreboard
    near: bool = False  # whether a store can take its address from a pair of uniform registers
    warps: int = 64  # resident warps of an SM, at the most
    shared: int = 227  # KiB of an SM's shared memory that blocks may have

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for users who record on this chip."""
        if self.state is State.RUN:
            return ()
        return (f"records on {self.name} were never run by ikp's makers: compare results.",)

    def offset_of(self, offset: int) -> int:
        """Return this chip's offset in the constant bank 0 for one of sm_90's."""
        if offset >= HOPPER.parameters:
            return offset - HOPPER.parameters + self.parameters
        return self.places.get(offset, offset)

    def fitted(self, steps: Sequence[Step]) -> list[Step]:
        """Return a sequence of sm_90's instructions in this chip's encodings."""
        if not (self.changes or self.places):
            return list(steps)
        made = [self._fit(step, _unset(steps[at + 1 :])) for at, step in enumerate(steps)]
        for at, step in enumerate(steps):
            if step.skips:
                skipped = made[at + 1 : at + 1 + step.skips]
                made[at] = [step._replace(skips=sum(map(len, skipped)), far=self.far)]
        return [each for some in made for each in some]

    def _fit(self, step: Step, free: Sequence[int]) -> list[Step]:
        opcode = step.low & 0xFFF
        if opcode in _CONSTANTS and step.low >> _BANK == 0:
            step = _at(step, self.offset_of(_offset(step)))
        if change := self.changes.get(opcode):
            return change(step, free)
        return [step]


_ULDC, _LDC, _R2UR, _ELECT, _REDG = 0xAB9, 0xB82, 0x2CA, 0x82F, 0x98E
_VIADD, _UIADD3, _UMOV = 0x836, 0x890, 0xC82
_IMAD, _IMAD_IMMEDIATE, _IMAD_UNIFORM = 0x224, 0x424, 0xE24
_CONSTANTS = (_ULDC, _LDC)
_BANK, _OFFSET, _LATE_OFFSET = 54, 38, 37
_UP_TO_MINE = 0x3A
_ALL_ZERO = 0xFF


def _offset(step: Step) -> int:
    return step.low >> _OFFSET & 0xFFFF


def _at(step: Step, offset: int) -> Step:
    return step._replace(low=step.low & ~(0xFFFF << _OFFSET) | offset << _OFFSET)


def _recoded(step: Step, opcode: int, high: int | None = None, time: int | None = None) -> Step:
    """Return a step with another opcode of 12 bits, and another upper half or time."""
    return step._replace(
        low=step.low & ~0xFFF | opcode,
        high=step.high if high is None else high,
        time=step.time if time is None else time,
    )


def _as(opcode: int, high: int | None = None, time: int | None = None) -> Change:
    return lambda step, _: [_recoded(step, opcode, high, time)]


def _unset(steps: Sequence[Step]) -> list[int]:
    """Return the registers that later steps write before they read them, on every path."""
    read: set[Resource] = set()
    found: list[int] = []
    for step in steps:
        if step.skips:
            break
        if step.guard == PT:
            found += [n for file, n in sorted(step.writes - step.reads - read) if file == "R"]
        read |= step.reads
    return list(dict.fromkeys(found))


def _elected_by_vote(step: Step, free: Sequence[int]) -> list[Step]:
    """Return steps that set a predicate in the last of the active threads, in place of ELECT.

    Each active thread has a bit in the vote. In the last one alone, the vote is no more than its
    own bit and all below it.
    """
    if len(free) < 2:
        raise PatchError("no two registers are free where a thread is to be chosen.")
    (votes, own), into = free[:2], step.high >> 17 & 7
    both = frozenset({("R", votes), ("R", own)})
    voted = Step(0x7806 | votes << 16, 0x038E0100, writes=frozenset({("R", votes)}))
    below = Step(0x7919 | own << 16, _UP_TO_MINE << 8, writes=frozenset({("R", own)}), time=NEVER)
    low = 0x720C | votes << 24 | own << 32
    last = Step(low, 0x03F03070 | into << 17, reads=both, writes=step.writes, time=6)
    return [voted._replace(waits=step.waits), below, last]


def _loaded_at_once(step: Step, _: Sequence[int]) -> list[Step]:
    """Return MOVs in place of an LDC with no index: on sm_8x, any operand can name a constant."""
    if step.reads:
        return [step]
    into, offset = step.low >> 16 & 0xFF, _offset(step)
    made = []
    for word in range(len(step.writes)):
        low = step.low & ~(0xFFFF << 16) | into + word << 16
        moved = _recoded(step._replace(low=low), 0xA02, 0xF00, 6)
        moved = _at(moved, offset + 4 * word)._replace(writes=frozenset({("R", into + word)}))
        made.append(moved)
    return made


_AMPERE: Final[Mapping[int, Change]] = {
    _VIADD: _as(0x810, 0x07FFE0FF),  # it adds three numbers
    _R2UR: _as(0x3C2, time=NEVER),
    _LDC: _loaded_at_once,
    _ELECT: _elected_by_vote,
}


def _late_constant(step: Step, _: Sequence[int]) -> list[Step]:
    low = step.low & ~(0xFFFF << _OFFSET) | _offset(step) << _LATE_OFFSET | _ALL_ZERO << 24
    return [_recoded(step._replace(low=low), 0x7AC, step.high | 0x08000000, NEVER)]


def _zero(half: int, bit: int) -> Change:
    """Return a change of a field that names the uniform register that is always zero."""

    def change(step: Step, _: Sequence[int]) -> list[Step]:
        value = (step.high if half else step.low) >> bit & 0xFF
        mask = (_ALL_ZERO if value == URZ else value) << bit
        if half:
            return [step._replace(high=step.high & ~(_ALL_ZERO << bit) | mask)]
        return [step._replace(low=step.low & ~(_ALL_ZERO << bit) | mask)]

    return change


_BLACKWELL: Final[Mapping[int, Change]] = {
    _ULDC: _late_constant,
    _REDG: lambda step, _: [step._replace(high=step.high ^ 0x00020080)],
    _ELECT: _zero(0, 16),
    _UMOV: _zero(0, 32),
    _UIADD3: _zero(1, 0),
}


def _moved(opcode: int, high: int = 0xF00) -> Change:
    """Return a change to a MOV, from a multiplication by zero that names RZ as its first factor."""
    return lambda step, _: [_recoded(step._replace(low=step.low & ~(RZ << 24)), opcode, high)]


def _copied(step: Step, _: Sequence[int]) -> list[Step]:
    """Return a copy by IMAD as a MOV; any other IMAD stays."""
    if step.high >> 8 & 0xFF:
        return [step]
    low = step.low & 0xFFFFFF | (step.high & 0xFF) << 32
    return [_recoded(step._replace(low=low), 0x202, 0xF00)]


_SMALL_BLACKWELL: Final[Mapping[int, Change]] = {
    **_BLACKWELL,
    _VIADD: _as(0x835, 0x078E0000),  # it adds two numbers
    _IMAD_IMMEDIATE: _moved(0x802),
    _IMAD_UNIFORM: _moved(0xC02, 0x08000F00),
    _IMAD: _copied,
}

HOPPER: Final = Chip("sm_90", State.RUN, 0x210, near=True)


def _ampere(name: str) -> Chip:
    return Chip(name, State.COMPILED, 0x160, {0x208: 0x118}, _AMPERE, far=NARROW, late=True)


def _blackwell(name: str, changes: Mapping[int, Change] = _BLACKWELL) -> Chip:
    block = {offset: 0x360 + offset for offset in range(0, 12, 4)}  # threads, and blocks
    block |= {offset + 0xC: 0x370 + offset for offset in range(0, 12, 4)}
    places = {**block, 0x30: 0x140, 0x208: 0x358}
    return Chip(name, State.COMPILED, 0x380, places, changes)


_CHIPS: Final = {
    80: replace(_ampere("sm_80"), shared=163),
    86: replace(_ampere("sm_86"), warps=48, shared=99),
    89: replace(_ampere("sm_89"), warps=48, shared=99),
    90: HOPPER,
    100: _blackwell("sm_100"),
    103: _blackwell("sm_103"),
    120: replace(_blackwell("sm_120", _SMALL_BLACKWELL), warps=48, shared=99),
}
CHIPS: Final = tuple(_CHIPS.values())
"""The supported chips, the oldest first."""


def chip_of(sm: int, kernel: Kernel, *, untested: bool = False) -> Chip:
    """Return the chip that a kernel is for.

    Args:
        sm: the chip's number, 90 for sm_90.
        kernel: a kernel of a cubin for this chip.
        untested: whether to allow chips on which records were never run.

    Raises:
        PatchError: the chip is not known, or untested, or the kernel's parameters lie elsewhere.
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
    if (found := _parameters(kernel)) not in (None, chip.parameters):
        raise PatchError(
            f"{kernel.name} has its parameters at {found:#x} in its constants, not at "
            f"{chip.parameters:#x} as every known one of {chip.name}: where its other constants "
            "lie is not known."
        )
    return chip


def _parameters(kernel: Kernel) -> int | None:
    """Return the offset of a kernel's parameters in the constant bank 0, if the cubin has it."""
    found = (
        each.numbers(2)[1] & 0xFFFF
        for each in kernel.attributes
        if each.code == AttributeCode.PARAM_CBANK
    )
    return next(found, None)
