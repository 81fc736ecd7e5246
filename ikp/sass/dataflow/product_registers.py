"""Registers that a warp gives to a warpgroup's products, and where: before the first of them.

``WARPGROUP.ARRIVE`` says that the products may have them, and from there on they may be written: a
product was seen to overwrite what a store had not read yet, though its warp waited for that store
between there and the product. Whether another warp's product did it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from ikp.sass.dataflow.liveness import Liveness


@dataclass(frozen=True, slots=True)
class Given:
    """What products read and write, a bit each."""

    reads: int
    writes: int


def given_up(liveness: Liveness) -> dict[int, Given]:
    """Return what the products behind each ``WARPGROUP.ARRIVE`` have, by that instruction."""
    arriving = liveness.flow.code.having(lambda opcode: opcode.startswith("WARPGROUP.ARRIVE"))
    return {at: _behind(liveness, at) for at in arriving}


def _behind(liveness: Liveness, at: int) -> Given:
    """Return what the products have that follow, up to what is said of others."""
    code, reads, writes = liveness.flow.code.instructions, 0, 0
    work, seen = liveness.flow.after(at), set[int]()
    while work:
        here = work.pop()
        if here in seen or code[here].opcode.startswith("WARPGROUP."):
            continue
        seen.add(here)
        if "GMMA" in code[here].opcode:
            reads |= liveness.effects[here].reads
            writes |= liveness.effects[here].writes
        work += liveness.flow.after(here)
    return Given(reads, writes)
