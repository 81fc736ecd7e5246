"""Dataflow analysis of PTX registers in flight: ``settled`` finds instructions that wait for none.

A register is in flight from the instruction that writes it: a load, an atomic, a shuffle. Quick
integer arithmetic on settled registers alone leaves none in flight. It is so until an instruction
of the same basic block, which needs it or a value computed from it to be issued, has waited for it.
At a block's entry, a register is in flight if it is so on any path. Parameters of the kernel are
loaded, too (LDC: some 20 cycles on an H200), and special registers take as long. Clock reads are
settled. Results of the user's inline assembly are in flight.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain

from ikp.backends.triton.passes._items import Item, ItemKind
from ikp.ptx.instructions import PtxInstruction, StatementKind

_NAME = re.compile(r"[\w$]+")
_LEAVES = ("bra", "brx", "ret", "exit", "trap")
Names = frozenset[str]
_NONE: frozenset[int | str] = frozenset()


@dataclass(slots=True)
class _Block:
    """A basic block: items ``start`` to ``stop``, and the blocks that follow it."""

    start: int
    stop: int
    following: list[int] = field(default_factory=list)
    entry: set[str] = field(default_factory=set)  # registers that may be in flight at its start


def settled(found: list[Item]) -> list[bool]:
    """Return for each item whether no register that it reads is in flight when it is reached."""
    blocks = _blocks(found)
    known = [True] * len(found)
    work = list(range(len(blocks)))
    while work:
        block = blocks[work.pop()]
        left = _run(found, block, known)
        for number in block.following:
            if not left <= blocks[number].entry:
                blocks[number].entry |= left
                work.append(number)
    return known


def _run(found: list[Item], block: _Block, known: list[bool]) -> Names:
    """Note what is settled in a block, and return the registers in flight at its end."""
    origins: dict[str, frozenset[int | str]] = {name: frozenset([name]) for name in block.entry}
    arrived: set[int | str] = set()

    def flying(names: Names) -> frozenset[int | str]:
        return _NONE.union(*(origins.get(name, _NONE) for name in names)) - arrived

    for at in range(block.start, block.stop):
        item = found[at]
        if item.role in (ItemKind.START, ItemKind.END):
            origins.update(dict.fromkeys(item.writes, _NONE))
        elif item.role is ItemKind.STORE:  # ikp's own registers don't depend on the kernel's loads
            known[at] = not flying(frozenset(n for n in item.reads if not n.startswith("ikp_")))
        elif item.instruction is not None:
            coming = flying(item.reads)
            known[at] = not coming
            if item.instruction.waits:
                arrived |= coming
            if not _is_settling(item):
                coming = frozenset([at])
            origins.update(dict.fromkeys(item.writes, coming))
    return frozenset(name for name in origins if flying(frozenset([name])))


def _is_settling(item: Item) -> bool:
    """Whether an instruction's results are settled when its operands are."""
    made = item.instruction
    if made is None or item.foreign:
        return False
    return made.is_quick and not made.reads_special


def _blocks(found: list[Item]) -> list[_Block]:
    """Return the basic blocks, and their edges. A label that no branch names begins no block."""
    aimed = {name for item in found if _branches(item) for name in _NAME.findall(item.code)}
    blocks: list[_Block] = []
    labels: defaultdict[str, list[int]] = defaultdict(list)
    start = 0
    for at, item in enumerate([*found, None]):
        label = _label(item)
        if item is None or label in aimed or item.parts[0].kind is StatementKind.HEAD:
            blocks.append(_Block(start, at))
            start = at
        if label in aimed:
            labels[label].append(len(blocks))
        if item is not None and _leaves(item.instruction):
            blocks.append(_Block(start, at + 1))
            start = at + 1
    _connect(found, blocks, labels)
    return blocks


def _connect(found: list[Item], blocks: list[_Block], labels: dict[str, list[int]]) -> None:
    for number, block in enumerate(blocks):
        last = found[block.stop - 1] if block.stop > block.start else None
        over = block.stop == len(found) or found[block.stop].parts[0].kind is StatementKind.HEAD
        if _goes_on(last) and not over:
            block.following.append(number + 1)
        if last is not None:
            block.following += chain.from_iterable(labels[each] for each in _aims(last, labels))


def _goes_on(last: Item | None) -> bool:
    """Whether threads may go on behind a block's last item."""
    made = last.instruction if last else None
    return not _leaves(made) or bool(made and made.guard)


def _aims(jump: Item, labels: dict[str, list[int]]) -> list[str]:
    """Return the labels that an item may jump to: of an indirect jump, all."""
    name = jump.instruction.name if jump.instruction else ""
    if name == "bra":
        return [each for each in _NAME.findall(jump.code) if each in labels]
    return list(labels) if name == "brx" else []


def _leaves(made: PtxInstruction | None) -> bool:
    return made is not None and made.name in _LEAVES


def _branches(item: Item) -> bool:
    made = item.instruction
    directive = item.parts[0].kind is StatementKind.DIRECTIVE and ".branchtargets" in item.code
    return directive or (made is not None and made.name in ("bra", "brx"))


def _label(item: Item | None) -> str:
    if item is None or item.parts[0].kind is not StatementKind.LABEL:
        return ""
    return item.code.rstrip(" :")
