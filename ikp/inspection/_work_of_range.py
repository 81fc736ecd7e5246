"""What the instructions of a range do together: activity, operations, bytes, cycles."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ikp.inspection._work import flop
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import IDLE, Work, lane_bytes, work_of

_STORES = ("UTMASTG", "UTMAREDG", "UBLKRED", "UBLKCP.G.S")
_WAITS = (
    (re.compile(r"WARPGROUP\.DEPBAR"), "wait:mma"),
    (re.compile(r"SYNCS\.PHASECHK"), "wait:barrier"),
    (re.compile(r"DEPBAR"), "wait:copy"),  # with a barrier behind it: all warps' copies are there
    (re.compile(r"BAR\.|UCGABAR_WAIT"), "wait:barrier"),
)
_MUCH = 8
"""So many floating-point instructions for each access to memory make a range one that computes."""
_LANES = 32
_SPECIAL = 8
"""Cycles in which a scheduler issues one of MUFU: 4 lanes a cycle."""


def activity(instructions: Iterable[tuple[Instruction, float]]) -> str:
    """Return what a range does that holds instructions, as an activity; "" for nothing.

    Args:
        instructions: with how often each is executed, for each time that the range is.
    """
    weights = [each for each in instructions if each[1] > 0]
    some = [each for each, _ in weights]
    count: defaultdict[Work, float] = defaultdict(float)
    for each, times in weights:
        count[work_of(each)] += times
    if count[Work.TENSOR]:
        return "mma"
    moved = sum(count[work] for work in (Work.LOAD, Work.STORE, Work.ATOMIC, Work.COPY))
    if count[Work.FLOAT] > _MUCH * moved > 0:
        return "compute"
    computes = "compute" if any(count[work] for work in _COMPUTES) else ""
    return _transfer(some, count) or _wait(some, count) or computes


def _transfer(some: Sequence[Instruction], count: Mapping[Work, float]) -> str:
    """Return which way a range moves data of global memory; "" where it moves none."""
    if count[Work.COPY]:
        copies = [each.opcode for each in some if work_of(each) is Work.COPY]
        return "store" if all(each.startswith(_STORES) for each in copies) else "copy"
    loads, stores = count[Work.LOAD], count[Work.STORE] + count[Work.ATOMIC]
    if not (loads or stores):
        return ""
    return "load" if loads >= stores else "store"


def _wait(some: Sequence[Instruction], count: Mapping[Work, float]) -> str:
    """Return what a range waits for that does little beside; "" for nothing."""
    if count[Work.FLOAT] > _MUCH or count[Work.SHARED]:
        return ""
    waits = (kind for shape, kind in _WAITS if any(shape.match(each.opcode) for each in some))
    return next(waits, "")


_COMPUTES = tuple(work for work in Work if work not in (*IDLE, Work.OTHER, Work.FENCE, Work.SIGNAL))


def flop_of(once: list[Instruction], many: list[Instruction]) -> int | None:
    """Return the operations on tensor cores; None where one's, or its executions, are not known."""
    products = [flop(each) for each in once if work_of(each) is Work.TENSOR]
    known = [each for each in products if each is not None]
    return None if len(known) < len(products) or has(many, Work.TENSOR) else sum(known)


def has(instructions: list[Instruction], work: Work) -> bool:
    """Whether any of some instructions does a kind of work."""
    return any(work_of(each) is work for each in instructions)


def bytes_of(once: list[Instruction], many: list[Instruction]) -> int | None:
    """Return the bytes of global memory that a warp asks for; None where instructions don't say."""
    moved = (Work.LOAD, Work.STORE, Work.COPY, Work.ATOMIC)
    if any(work_of(each) in moved for each in many):
        return None
    own = [each for each in once if work_of(each) in moved]
    if any(each.op.startswith("U") for each in own):  # TMA: a descriptor says how much
        return None
    return sum(_LANES * lane_bytes(each.opcode) for each in own)


def issue_cycles(instruction: Instruction) -> int:
    """Return for how many cycles an instruction keeps its scheduler from the next of its kind."""
    return _SPECIAL if instruction.op == "MUFU" else 1


def wavefronts(instruction: Instruction) -> int:
    """Return how many cycles shared memory needs at least for a warp's access: 128 bytes in one."""
    if work_of(instruction) is not Work.SHARED:
        return 0
    if instruction.op in ("LDSM", "STSM"):
        found = re.search(r"\.([24])\b", instruction.opcode)
        return int(found[1]) if found else 1
    return max(lane_bytes(instruction.opcode) // 4, 1)
