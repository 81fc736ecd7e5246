"""Registers that a warp gives to a warpgroup's products (WGMMA) at each ``WARPGROUP.ARRIVE``.

From that instruction on, before the first product, the registers may be written. A product was seen
to overwrite a register that a store had not read yet, though its warp waited for that store between
``WARPGROUP.ARRIVE`` and the product. Whether another warp's product did it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from ikp.sass.dataflow.liveness import Liveness


@dataclass(frozen=True, slots=True)
class Given:
    """The registers that products read and write, a bit each."""

    reads: int
    writes: int


def given_up(liveness: Liveness) -> dict[int, Given]:
    """Return the registers of the products behind each ``WARPGROUP.ARRIVE``, by its index."""
    arriving = liveness.flow.code.having(lambda opcode: opcode.startswith("WARPGROUP.ARRIVE"))
    return {at: _behind(liveness, at) for at in arriving}


def _behind(liveness: Liveness, at: int) -> Given:
    """Return the registers of the products up to the next ``WARPGROUP`` instruction."""
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
