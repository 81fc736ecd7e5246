"""``needless_barriers``: ``BAR.SYNC`` that order no accesses: all of them could go together.

No access before such a barrier meets one behind it.

A barrier orders two accesses where one of them writes, and no other barrier is between. Any two
accesses of one memory space may meet, but for those of shared memory where all addresses are known,
and each warp has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import reached
from ikp.sass.dataflow.lane_state import LANES
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, lane_bytes, work_of

_READS_SHARED, _WRITES_SHARED, _READS_GLOBAL, _WRITES_GLOBAL = 1, 2, 4, 8
_ANYTHING = 15
_ASYNCHRONOUS = (Work.COPY, Work.TENSOR, Work.TMEM, Work.SIGNAL)
"""Work whose accesses end at a time that no instruction's place says."""


def needless_barriers(
    flow: Flow, ours: Collection[int] = (), *, own_shared: bool = False
) -> frozenset[int]:
    """Return the barriers that can be removed, all of them together.

    None in code with asynchronous accesses to shared memory.

    Args:
        flow: the kernel.
        ours: the instructions of records, whose stores no thread reads, and of the plain copy that
            other blocks run, whose barriers are not asked for.
        own_shared: whether no warp accesses shared memory that another one accesses.
    """
    instructions = flow.code.instructions
    kept = {at for at, each in enumerate(instructions) if _is_full(each)}
    if not kept or any(_is_asynchronous(each) for each in instructions):
        return frozenset()
    left = _READS_GLOBAL | _WRITES_GLOBAL if own_shared else _ANYTHING
    masks = [_accesses(each) & left for each in instructions]
    for at in ours:
        masks[at] &= _READS_SHARED | _WRITES_SHARED  # of the copy that other blocks run
    found = set[int]()
    for at in sorted(kept - {*ours}, key=lambda one: -_depth(flow, one)):
        before, behind = _sides(flow, masks, kept, at)
        if not _meet(before, behind) and not _is_one_of_two(flow, masks, kept, at):
            kept.remove(at)
            found.add(at)
    return frozenset(found)


def has_own_shared(values: LaneValues, ours: Collection[int] = ()) -> bool:
    """Whether all addresses of shared memory are known, and each word is of one warp alone.

    Args:
        values: the kernel's registers, in all warps of some blocks.
        ours: the instructions of records.
    """
    flow, warps = values.flow, values.launch.shape.warps
    code = flow.code.instructions
    some = sorted({*flow.code.of(*_SHARED)} - {*ours})
    if warps < 2 or not some or flow.code.of("LD", "ST", "CALL"):
        return False
    if any(code[at].op not in ("LDS", "STS", "ATOMS") for at in some):
        return False
    known = [each for at in some if (each := _warps_and_words(values, at)) is not None]
    if len(known) < len(some):
        return False
    pairs = np.unique(np.concatenate(known, axis=1), axis=1)
    return len(np.unique(pairs[1])) == int(pairs.shape[1])


def _warps_and_words(values: LaneValues, at: int) -> NDArray[np.int64] | None:
    """Return which warp of the first block accesses which word; None where addresses are unknown.

    What the first block shares, others do. An address that a loop moves is not known.
    """
    flow, block = values.flow, slice(values.launch.shape.warps * LANES)
    bits = values.address(at).bits
    if bits is None or any(values.moves(at, each.header) for each in flow.loops if at in each.body):
        return None
    some_words = np.arange(max(lane_bytes(flow.code.instructions[at].opcode) // _WORD, 1))
    active = values.active(at)[block]
    words = (bits[block, None] // _WORD + some_words)[active]
    owner = (np.arange(len(active)) // LANES)[active]
    return np.stack([owner.repeat(len(some_words)), words.ravel()])


_SHARED: Final = ("LDS", "STS", "ATOMS", "LDSM", "STSM", "LDGSTS")
_WORD: Final = 4


def _is_one_of_two(flow: Flow, masks: list[int], kept: set[int], at: int) -> bool:
    """Whether a barrier's loop stores to shared memory, loads from it, and has two barriers or one.

    One orders loads behind the stores, one the next iteration's stores behind the loads: without
    it a kernel is wrong. So a loop keeps two, though one of them seems to order nothing.
    """
    loop = flow.loop_of(at)
    if loop is None:
        return False
    shared = reduce(or_, (masks[one] for one in loop.body), 0) & (_READS_SHARED | _WRITES_SHARED)
    return shared == _READS_SHARED | _WRITES_SHARED and len(kept & loop.body) <= _TWO


_TWO: Final = 2


def _depth(flow: Flow, at: int) -> int:
    return len(flow.loops_around(at))


def _is_full(each: Instruction) -> bool:
    """Whether an instruction is a barrier of all warps of the block, and nothing else."""
    return each.opcode.startswith("BAR.SYNC") and each.operands == ("0x0",) and not each.guard


def _is_asynchronous(each: Instruction) -> bool:
    work = work_of(each)
    return work in _ASYNCHRONOUS and not each.opcode.startswith(("HMMA", "IMMA", "DMMA", "BMMA"))


def _accesses(each: Instruction) -> int:
    work = work_of(each)
    if each.op in ("LD", "ST", "CALL", "MEMBAR"):
        return _ANYTHING
    if work is Work.SHARED:
        return _READS_SHARED if each.op.startswith("LD") else _WRITES_SHARED
    if work is Work.LOAD:
        return 0 if ".CONSTANT" in each.opcode else _READS_GLOBAL
    if work is Work.STORE:
        return _WRITES_GLOBAL
    if work is Work.ATOMIC:
        return _WRITES_SHARED if each.op == "ATOMS" else _WRITES_GLOBAL
    return 0


def _meet(before: int, behind: int) -> bool:
    pairs = ((_READS_SHARED, _WRITES_SHARED), (_READS_GLOBAL, _WRITES_GLOBAL))
    return any(
        (before & writes and behind & (reads | writes)) or (before & reads and behind & writes)
        for reads, writes in pairs
    )


def _sides(flow: Flow, masks: list[int], kept: set[int], barrier: int) -> tuple[int, int]:
    """Return the accesses between a barrier and the kept ones before it, and behind it."""

    def back(at: int) -> list[int]:
        return [edge.source for edge in flow.before[at]]

    return _passed(back, masks, kept, barrier), _passed(flow.after, masks, kept, barrier)


def _passed(
    ways: Callable[[int], list[int]], masks: list[int], kept: set[int], barrier: int
) -> int:
    passed = reached(ways(barrier), ways, lambda at: at not in kept)
    return reduce(or_, [masks[at] for at in passed], 0)
