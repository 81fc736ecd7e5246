"""Register hand-over (setmaxnreg): each instruction's registers, and the roles that it separates.

A warp that has given registers back must not touch those above its new number. One that asks for
more tries until it has them. Where paths come together, the smallest number of all holds.

A warp-specialised kernel has a role for each of its warpgroups: one loads, others compute. Each
role has code that no other reaches. It begins where the warps give registers back, or have got
those that they asked for. There, a warp is converged: ``setmaxnreg`` must be run by all threads of
a warpgroup.
"""

from __future__ import annotations

from dataclasses import dataclass

from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import reached
from ikp.sass.dataflow.liveness import with_calls
from ikp.sass.disassembly.effects import R
from ikp.sass.disassembly.listing import Instruction

_OP = "USETMAXREG"
_GIVES_BACK, _ASKS = "USETMAXREG.DEALLOC", "USETMAXREG.TRY_ALLOC"
_TRIES = 3
"""Instructions of the loop in which a warp asks: the request, a predicate, the jump back."""
_MOST = 255
"""Registers that a thread can name, at the most: of 256 the last one is RZ."""
_UNSEEN = 256
"""More than a thread can have: no path to a block was seen yet."""


def hands_over(flow: Flow) -> bool:
    """Return whether warps of a kernel give registers to others."""
    return bool(flow.code.of(_OP))


def given_back(flow: Flow) -> dict[int, int]:
    """Return the registers that other warps may write from an instruction on: its index -> bits."""
    given = _given_back(flow)
    return {at: R.all >> count << count for at, count in given.items()}


def registers_at(flow: Flow, launched: int) -> list[int]:
    """Return how many registers a thread has at least before each instruction.

    Args:
        flow: the kernel.
        launched: how many registers a thread has at launch.
    """
    code = flow.code.instructions
    given = _given_back(flow)
    given |= {at: left(code[question]) for question, at in answers(flow)}
    found = [launched] * len(code)
    if not given:
        return found
    blocks = flow.graph.blocks
    for block, entering in zip(blocks, _entering(flow, given, launched), strict=True):
        now = entering
        for at in range(block.first, block.end):
            found[at] = now
            now = given.get(at, now)
    return found


def left(instruction: Instruction) -> int:
    """Return how many registers a thread has after a ``USETMAXREG``."""
    return min(int(instruction.operands[-1], 0), _MOST)


def gives_back(flow: Flow) -> list[int]:
    """Return the instructions that give registers back (``USETMAXREG.DEALLOC``)."""
    return flow.code.having(lambda opcode: opcode.startswith(_GIVES_BACK))


def _given_back(flow: Flow) -> dict[int, int]:
    """Return how many registers a thread has left after each instruction that gives some back."""
    return {at: left(flow.code.instructions[at]) for at in gives_back(flow)}


def answers(flow: Flow) -> list[tuple[int, int]]:
    """Return each request for registers, with the jump back: behind the jump, the warp has them.

    A request in any other form counts as not granted.
    """
    code, labels = flow.code.instructions, flow.code.labels
    found = []
    for at in flow.code.having(lambda opcode: opcode.startswith(_ASKS)):
        if at + _TRIES > len(code):
            continue
        jump = code[at + _TRIES - 1]
        back = [labels[to] for to in jump.targets if to in labels]
        if jump.op == "BRA" and jump.guard and any(at - 1 <= to <= at for to in back):
            found.append((at, at + _TRIES - 1))
    return found


def _entering(flow: Flow, given: dict[int, int], launched: int) -> list[int]:
    """Return how many registers a thread has at least where each block begins."""
    after, blocks = with_calls(flow), flow.graph.blocks
    made = [
        next((given[at] for at in reversed(range(each.first, each.end)) if at in given), None)
        for each in blocks
    ]
    entering = [launched, *[_UNSEEN] * (len(blocks) - 1)]
    work = [0]
    while work:
        block = work.pop()
        last = made[block]
        leaving = entering[block] if last is None else last
        for to in after[block]:
            if leaving < entering[to]:
                entering[to] = leaving
                work.append(to)
    return [launched if each == _UNSEEN else each for each in entering]


@dataclass(frozen=True, slots=True)
class Role:
    """The code of one role. Instructions go by their index."""

    entrance: int  # the instruction before which its warps pass once
    rows: frozenset[int]  # its instructions, the entrance among them
    falls: bool  # whether warps fall through to it: those that jump there are in the role already


def roles(flow: Flow) -> list[Role]:
    """Return a kernel's roles; none if two share code, or a warp may enter one twice."""
    after, first = with_calls(flow), dict.fromkeys(gives_back(flow), False)
    first |= {at + 1: True for _, at in answers(flow)}
    found = [Role(at, _reached(flow, after, at), falls) for at, falls in sorted(first.items())]
    apart = sum(len(each.rows) for each in found) == len(
        frozenset().union(*(r.rows for r in found))
    )
    return found if apart and all(_entered_once(flow, each) for each in found) else []


def _reached(flow: Flow, after: list[list[int]], first: int) -> frozenset[int]:
    """Return all instructions that can be reached from one."""
    blocks = flow.graph.blocks
    own = flow.graph.block(first)
    behind = flow.instructions(frozenset(reached(after[own], after.__getitem__)))
    return frozenset(range(first, blocks[own].end)) | behind


def _entered_once(flow: Flow, role: Role) -> bool:
    """Whether no warp passes a role's entrance twice."""
    before = {edge.source for edge in flow.before[role.entrance]}
    if role.falls:
        return before - role.rows == {role.entrance - 1}
    return before.isdisjoint(role.rows)
