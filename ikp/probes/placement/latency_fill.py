"""Latency filling: the kernel's own instructions that may run while a probe waits for results.

A record's store issues some twenty cycles after its clock was read, and in only ten of them a probe
instruction issues. Where the kernel does not need the probe's registers soon, its next instructions
fill the other cycles.
"""

from __future__ import annotations

from ikp.probes.code.reserved_registers import Scratch
from ikp.probes.placement.scratch_registers import used
from ikp.sass.assembly.assembler import PT
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.disassembly.resources import P, R, table

_APART = ("WARPGROUP", "DEPBAR", "UTC", "USETMAXREG", "WARPSYNC", "BSYNC", "NANOSLEEP")
"""Prefixes of instructions that fill no probe; nor does a warpgroup's product."""
_MOST = 16
"""The most instructions that fill a probe: a reader of the code still finds its stores together."""


def fillers(
    room: FreeRegisters,
    first: int,
    stop: int,
    scratch: Scratch,
    stores: bool,
    begun: int,
    held: int = 0,
) -> list[int]:
    """Return the cycles for which each filling instruction, at least, holds back the next one.

    They follow one another, from the first on, as long as the probe's rest can come behind them.

    Args:
        room: the free registers.
        first: the instruction before which the probe begins.
        stop: the instruction before which, at the latest, it must be over.
        scratch: the probe's registers.
        stores: whether it stores a record; else it only reads a clock.
        begun: the registers from which it takes starts, as bits.
        held: the registers that are reserved until after ``stop``, as bits.
    """
    code, effects = room.liveness.flow.code, room.liveness.effects
    jumps, stalls = room.liveness.flow.graph.jumps, code.controls.stalls
    members = 1 << R.first + scratch.last | (used(scratch) if stores else 0)
    touched = begun | (1 << P.first + scratch.predicate if stores else 0)
    if scratch.saved is None:
        members |= touched & P.all
    else:  # the kernel needs that predicate, later
        members |= 1 << R.first + scratch.saved
    touched |= members
    if scratch.gathered is not None and scratch.predicate != PT:
        touched |= scratch.gathered.stored  # no load into the fourth may begin before the store
    columns = table([members & ~held])[0]
    found: list[int] = []
    for at in range(first, min(stop, first + _MOST)):
        own, opcode = effects[at], code.instructions[at].opcode
        leaves = at in jumps.leaving or at in jumps.calls or at + 1 >= len(room.free)
        if leaves or "GMMA" in opcode or opcode.startswith(_APART):
            break
        if (own.reads | own.writes) & touched or not room.free[at + 1][columns].all():
            break
        found.append(max(int(stalls[at]), 1))
    return found
