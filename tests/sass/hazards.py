"""Registers that are written while something in flight still reads or writes them."""

from __future__ import annotations

from ikp.sass.dataflow.hazards import ScoreboardHazards
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.outstanding import OPERANDS, UNTOLD
from ikp.sass.disassembly.effects import R
from ikp.sass.disassembly.listing import SCOREBOARDS

_REGISTERS = (1 << R.count) - 1  # predicates are read at once


def hazards(code: Liveness) -> list[str]:
    """Return the instructions of a function that do so, as text.

    A compiler's own code has few: it knows that some instructions read their registers in order.
    """
    flight = ScoreboardHazards(code)
    states, waits = flight.states, code.flow.code.controls.waits
    found = []
    for at, instruction in enumerate(code.flow.code.instructions):
        in_flight = 0
        for untold in states[at][UNTOLD:]:
            in_flight |= untold
        for board in range(SCOREBOARDS):
            if not waits[at] >> board & 1:
                in_flight |= states[at][board] | states[at][OPERANDS + board]
        written = code.effects[at].kills
        if at in flight.given:  # products may write them from here on
            written |= flight.given[at].writes
        if not instruction.never_runs and written & in_flight & _REGISTERS:
            found.append(instruction.text)
    return found
