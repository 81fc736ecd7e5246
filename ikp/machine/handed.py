"""How many registers a thread has at each instruction: warps may give some back (setmaxnreg).

A warp that has given registers back must not touch those above its new number. What a warp asks for
is not counted on: where paths come together, the smallest number that one of them has left holds.
"""

from __future__ import annotations

from ikp.machine.flow import Flow
from ikp.machine.liveness import with_calls
from ikp.machine.sass import Instruction

_OP = "USETMAXREG"
_GIVES_BACK = "USETMAXREG.DEALLOC"


def hands_over(flow: Flow) -> bool:
    """Return whether warps of a kernel give registers to others."""
    return any(each.op == _OP for each in flow.code.instructions)


def registers_at(flow: Flow, launched: int) -> list[int]:
    """Return how many registers a thread has at least before each instruction.

    Args:
        flow: the kernel.
        launched: how many it is launched with.
    """
    code = flow.code.instructions
    given = {at: left(each) for at, each in enumerate(code) if each.opcode.startswith(_GIVES_BACK)}
    found = [launched] * len(code)
    if not given:
        return found
    blocks = flow.graph.blocks
    for block, entering in zip(blocks, _entering(flow, given, launched), strict=True):
        now = entering
        for at in range(block.first, block.end):
            found[at] = now
            now = min(now, given.get(at, now))
    return found


def left(instruction: Instruction) -> int:
    """Return how many registers a thread has behind an instruction that gives some back."""
    return int(instruction.operands[-1], 0)


def _entering(flow: Flow, given: dict[int, int], launched: int) -> list[int]:
    """Return how many a thread has at least where each block begins."""
    after, blocks = with_calls(flow), flow.graph.blocks
    most = [
        min([given[at] for at in range(each.first, each.end) if at in given], default=launched)
        for each in blocks
    ]
    entering = [launched] * len(blocks)
    work = [number for number, each in enumerate(most) if each < launched]
    while work:
        block = work.pop()
        leaving = min(entering[block], most[block])
        for to in after[block]:
            if leaving < entering[to]:
                entering[to] = leaving
                work.append(to)
    return entering
