"""Work around products of tensor cores in loops: on their operands, and on sums they could keep.

``reworked``: what converts, scales or joins loaded numbers before a product takes them, in each
iteration. Operands that another product has made (the probabilities of an attention) are left out.
``promoted``: what adds a product's result to another sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, work_of

PRODUCTS: Final = ("HMMA", "HGMMA", "QGMMA", "QMMA", "IMMA", "IGMMA")
"""Products of tensor cores."""
_STORES: Final = ("STS", "STSM")
_LOADS: Final = ("LDG", "LDS", "LDSM", "LD")
_FAR: Final = 4096
"""Instructions of a loop that are looked at behind an operand."""


def reworked(uses: DefUse) -> tuple[set[int], set[int]]:
    """Return what is done in loops to loaded operands of products, and where these arrive."""
    flow = uses.flow
    code, found, ends = flow.code.instructions, set[int](), set[int]()
    for loop in flow.loops:
        own = uses.own(loop)
        if not any(code[at].op in PRODUCTS for at in own):
            continue
        for at in own:
            if code[at].op not in (*_STORES, *PRODUCTS):
                continue
            for text in _values(uses, at):
                if made := _on_the_way(uses, at, text, loop.body):
                    found |= made
                    ends.add(at)
    return found, ends


def _values(uses: DefUse, at: int) -> tuple[str, ...]:
    """Return the operands of a store that are stored, and the factors of a product in registers."""
    each = uses.flow.code.instructions[at]
    some = each.operands[1:] if each.op in _STORES else each.operands[1:3]
    return tuple(text for text in some if text.startswith("R") and "[" not in text)


def _on_the_way(uses: DefUse, at: int, text: str, body: frozenset[int]) -> set[int]:
    """Return the arithmetic between loads and an operand, in a loop; nothing of other operands.

    Of a vector the first register is looked at: the same is done to the others.
    """
    code = uses.flow.code.instructions
    seen, work, loaded = set[int](), [*(uses.source_set(at, text) & body)], False
    while work:
        one = work.pop()
        if one in seen:
            continue
        op = code[one].op
        if op in PRODUCTS or len(seen) > _FAR:
            return set()
        if op in _LOADS:
            loaded = True
        elif work_of(code[one]) in (Work.FLOAT, Work.INTEGER, Work.SHUFFLE):
            seen.add(one)
            work += uses.sources(one) & body
    return seen if loaded else set()


def promoted(uses: DefUse) -> list[int]:
    """Return additions in loops of what a product has just made to a sum of many iterations.

    Products can add to that sum themselves. Where a factor goes with it, they can't. With the sums
    go selections of these, as of a first iteration.
    """
    flow, found = uses.flow, set[int]()
    code = flow.code.instructions
    for at in flow.code.of(*_SUMS):
        loop, each = flow.loop_of(at), code[at]
        if loop is None or at in uses.ours or each.guard or not _adds(each):
            continue
        second = each.operands[-1] if each.op == "IMAD" else each.operands[2]
        made = [uses.source_set(at, text) for text in (each.operands[1], second)]
        for one, other in (made, made[::-1]):
            if not _are_products(flow, one):
                continue
            selects = {way for way in other & loop.body if code[way].op in _SELECTS}
            behind = {way for select in selects for way in uses.sources(select)} & loop.body
            last = max(other & loop.body | behind, default=-1)  # from at on: the iteration before
            if last >= at or (other | behind) & found:
                found |= {at, *selects}
                break
    selects = {user for at in found for user in uses.users(at) if code[user].op in _SELECTS}
    return sorted(found | selects)


_SUMS: Final = ("FADD", "IADD3", "VIADD", "IMAD")
_SELECTS: Final = ("SEL", "FSEL")


def _adds(each: Instruction) -> bool:
    """Whether a product of integers is by one: a compiler adds so, too."""
    return each.op != "IMAD" or each.opcode.startswith("IMAD.IADD")


def _are_products(flow: Flow, sources: Iterable[int]) -> bool:
    """Whether there are instructions, all of which are products."""
    ops = {flow.code.instructions[source].op for source in sources}
    return bool(ops) and ops <= {*PRODUCTS}
