"""Roles of a warp-specialised kernel: the code of each, found by register hand-over (setmaxnreg).

Such a kernel has a role for each of its warpgroups: one loads, others compute. Each role has code
that no other reaches. It begins where the warps give registers back, or have got those that they
asked for. There, a warp is converged: ``setmaxnreg`` must be run by all threads of a warpgroup.
"""

from __future__ import annotations

from dataclasses import dataclass

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.liveness import with_calls
from ikp.sass.dataflow.register_handover import answers, gives_back


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
    seen, work = set[int](), list(after[own])
    while work:
        block = work.pop()
        if block not in seen:
            seen.add(block)
            work += after[block]
    return frozenset(range(first, blocks[own].end)) | flow.instructions(frozenset(seen))


def _entered_once(flow: Flow, role: Role) -> bool:
    """Whether no warp passes a role's entrance twice."""
    before = {edge.source for edge in flow.before[role.entrance]}
    if role.falls:
        return before - role.rows == {role.entrance - 1}
    return before.isdisjoint(role.rows)
