"""Whether a register is dead, by a walk of every way: slow, and simple enough to check the rest."""

from __future__ import annotations

from collections.abc import Iterator

from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.effects import effects


def clobbers(flow: Flow, at: int, register: int) -> bool:
    """Whether a value in a register before an instruction may be read before it is overwritten.

    Args:
        flow: the kernel.
        at: the index of the instruction before which the register would be overwritten.
        register: its bit; see ``resources``.
    """
    code = flow.code
    seen: set[int] = set()
    work = [at]
    while work:
        here = work.pop()
        if here in seen:
            continue
        seen.add(here)
        effect = effects(code.instructions[here])
        if effect.reads >> register & 1:
            return True
        if not effect.kills >> register & 1:
            work += _next(flow, here)
    return False


def _next(flow: Flow, at: int) -> Iterator[int]:
    jumps, count = flow.graph.jumps, len(flow.code.instructions)
    ways = [to for to, _ in jumps.leaving.get(at, ((at + 1, ""),))]
    ways += jumps.calls.get(at, ())
    if at in jumps.returns:
        ways += [call + 1 for call in jumps.calls]
    return (to for to in ways if to < count)
