"""Accesses that a warp makes by one lane, which its lanes elect by a vote.

Compilers join the atomics of a warp on one address: ``VOTE`` says which lanes are active, ``FLO``
which is the highest of them, and a comparison with ``SR_LANEID`` lets that lane alone operate.
"""

from __future__ import annotations

from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Instruction


def is_elected(flow: Flow, at: int) -> bool:
    """Whether the guard of an instruction lets one lane of a warp execute it, by a vote.

    Args:
        flow: the kernel.
        at: the instruction. The election is looked for in its basic block.
    """
    guard = flow.code.instructions[at].guard
    if not guard or "!" in guard:
        return False
    compare = _written(flow, at, guard.lstrip("@"))
    if compare is None or not _of(flow, compare).opcode.startswith("ISETP.EQ"):
        return False
    highest = (_written(flow, compare, name) for name in _of(flow, compare).operands[2:4])
    return any(one is not None and _is_vote(flow, one) for one in highest)


def _is_vote(flow: Flow, at: int) -> bool:
    """Whether an instruction finds the highest lane of a vote."""
    each = _of(flow, at)
    voted = _written(flow, at, each.operands[-1]) if each.op in ("FLO", "UFLO") else None
    return voted is not None and _of(flow, voted).op in ("VOTE", "VOTEU")


def _written(flow: Flow, at: int, name: str) -> int | None:
    """Return the last instruction of the same block before one that writes a register by name."""
    first = flow.graph.blocks[flow.graph.block(at)].first
    each = (one for one in range(at - 1, first - 1, -1) if name in _of(flow, one).operands[:1])
    return next(each, None)


def _of(flow: Flow, at: int) -> Instruction:
    return flow.code.instructions[at]
