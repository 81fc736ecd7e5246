"""Divergence: where threads of one warp may be apart, and the code that they then run together.

Where threads diverge and common code follows, a compiler marks the region (BSSY) and makes them
reconverge (BSYNC). Where only the kernel's end follows, it does not: threads diverge for good, and
run blocks that both paths reach more than once. A uniform jump causes no divergence. A jump of
which one path only ends leaves one group of threads that still works.

Collective bodies are code that the threads of a diverged warp run together. ``WARPSYNC.COLLECTIVE``
gathers the threads of a mask, or all of them (``.ALL``). They run the instructions up to
``ENDCOLLECTIVE`` as one, and each goes on at the label that ``WARPSYNC`` names. Compilers put
shuffles, votes and barriers there, on the slow path behind ``BRA.DIV``. A probe in such a body
would run with lanes that are inactive around it, so no probe is inserted there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ikp.sass.control_flow.flow import Dominance, Flow
from ikp.sass.control_flow.graph import depth_first
from ikp.sass.disassembly.listing import Code

_BEGINS = "WARPSYNC.COLLECTIVE"


def collective_bodies(code: Code) -> dict[int, int]:
    """Return the instructions of collective bodies, before which no code can be inserted.

    Returns:
        Index of an instruction -> index of the ``WARPSYNC.COLLECTIVE`` whose body it is in.
    """
    found: dict[int, int] = {}
    for at in code.having(lambda opcode: opcode.startswith(_BEGINS)):
        ends = [code.labels[name] for name in code.instructions[at].targets if name in code.labels]
        found |= dict.fromkeys(range(at + 1, max(ends, default=at)), at)
    return found


_ENDING = ("BRA", "EXIT", "NOP")
"""Instructions of a block that does nothing but end the kernel."""


@dataclass(frozen=True, slots=True)
class Parted:
    """Blocks that threads of a warp may reach apart, and blocks in which the others may be then."""

    blocks: set[int]
    others: set[int]


def between(flow: Flow) -> Iterator[Parted]:
    """Yield the blocks between a BSSY, where threads may diverge, and their reconvergence."""
    graph, code = flow.graph, flow.code
    notable = [(at, code.instructions[at]) for at in code.of("BSSY", "BSYNC")]
    syncs = [(at, i.operands[:1]) for at, i in notable if i.op == "BSYNC"]
    around: list[tuple[int, set[int]]] = []
    for at, instruction in notable:
        if instruction.op == "BSSY":
            name, block = instruction.operands[:1], graph.block(at)
            met = {graph.block(code.labels[t]) for t in instruction.targets if t in code.labels}
            last = {graph.block(sync) for sync, barrier in syncs if barrier == name} - met
            found = _until(flow, block, met, last)
            for outer, blocks in around:  # threads that BREAK out of the inner meet at the outer
                if block in blocks or block == outer:
                    found &= blocks
            around.append((block, found))
            yield Parted(found, found | met)


def _until(flow: Flow, start: int, met: set[int], last: set[int]) -> set[int]:
    """Return the blocks after one, up to ``met`` and with ``last``."""
    seen: set[int] = set()
    work = list(flow.graph.after[start])
    while work:
        block = work.pop()
        if block not in seen and block not in met:
            seen.add(block)
            work += () if block in last else flow.graph.after[block]
    return seen


def for_good(
    flow: Flow,
    noted: AbstractSet[int],
    leaving: Dominance,
    parts: Callable[[int], bool],
) -> Iterator[Parted]:
    """Yield the blocks that threads may reach apart after they diverged with no reconvergence.

    Args:
        flow: the kernel.
        noted: the blocks between a BSSY and its BSYNC.
        leaving: the post-dominance: which blocks every path to the kernel's end passes.
        parts: whether a jump, by its index, may be divergent.
    """
    works = {number for number in flow.graph.order if _works(flow, number)}
    meeting = leaving.below(works)  # behind these, common code follows
    begun = flow.code.of("BSSY")
    for block in flow.graph.order:
        jump = _unnoted(flow, block, begun) if block not in noted else None
        if jump is not None and block not in meeting and parts(jump):
            yield _apart(flow, block, works)


def _works(flow: Flow, number: int) -> bool:
    block = flow.graph.blocks[number]
    code = flow.code.instructions
    return any(code[at].op not in _ENDING for at in range(block.first, block.end))


def _unnoted(flow: Flow, number: int, begun: Sequence[int]) -> int | None:
    """Return the conditional jump at a block's end, if the block has no BSSY before it.

    Args:
        flow: the kernel.
        number: of the block.
        begun: the kernel's BSSY instructions, in order.
    """
    block = flow.graph.blocks[number]
    last = block.end - 1
    if len(set(flow.graph.after[number])) < 2 or last not in flow.graph.jumps.leaving:
        return None
    noted = bisect_left(begun, block.first) < bisect_left(begun, last)
    return None if noted else last


def _apart(flow: Flow, block: int, works: set[int]) -> Parted:
    """Return the blocks that threads may reach apart after they diverge at a block's end."""
    ways = [set(depth_first(flow.graph.after, to)) for to in {*flow.graph.after[block]}]
    shared = {number for way in ways for number in way if sum(number in each for each in ways) > 1}
    busy = [way for way in ways if (way - shared) & works]
    every = set[int]().union(*ways)
    return Parted(shared if len(busy) < 2 else every, every)
