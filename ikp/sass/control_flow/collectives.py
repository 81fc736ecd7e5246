"""Collective bodies: code that the threads of a diverged warp run together.

``WARPSYNC.COLLECTIVE`` gathers the threads of a mask, or all of them (``.ALL``). They run the
instructions up to ``ENDCOLLECTIVE`` as one, and each goes on at the label that ``WARPSYNC`` names.
Compilers put shuffles, votes and barriers there, on the slow path behind ``BRA.DIV``. A probe in
such a body would run with lanes that are inactive around it, so no probe is inserted there.
"""

from __future__ import annotations

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
