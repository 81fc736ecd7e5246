"""Which of a kernel's own instructions may run while a record waits for its results.

A record's store issues some twenty cycles after its clock was read, and only ten of them issue
something. Where nobody needs its registers soon, what the kernel does next fills the others.
"""

from __future__ import annotations

from ikp.probes.code.reserved_registers import Scratch
from ikp.probes.placement.scratch_registers import used
from ikp.sass.assembly.assembler import PT
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.disassembly.resources import P, R, table

_APART = ("WARPGROUP", "DEPBAR", "UTC", "USETMAXREG", "WARPSYNC", "BSYNC", "NANOSLEEP")
"""Instructions that stand in no run begin so; nor does a warpgroup's product."""
_MOST = 16
"""A record's stores stand so near each other that whoever reads the code finds them together."""


def fillers(
    room: FreeRegisters,
    first: int,
    stop: int,
    scratch: Scratch,
    stores: bool,
    begun: int,
    held: int = 0,
) -> list[int]:
    """Return for how many cycles, at least, each instruction holds back the next one.

    They follow one another, from the first on: as long as a run of inserted ones can stand behind.

    Args:
        room: what is free where.
        first: the instruction before which the run begins.
        stop: the one before which, at the latest, it must be over.
        scratch: what the run uses.
        stores: whether that is a whole record's; else it is the register of a clock alone.
        begun: the registers from which it takes starts, as bits.
        held: what is ours until after ``stop``, as bits.
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
