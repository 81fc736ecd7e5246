"""Placement of a warp's header store before an EXIT: its registers, waits, and a skip around it.

Threads that an EXIT lets go on skip the code.
"""

from __future__ import annotations

from ikp.errors import PatchError
from ikp.probes.code.header_code import leave, leave_by_words, leave_together
from ikp.probes.code.reserved_registers import Frame
from ikp.probes.placement.scavenged_pair import Lender, lent
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step
from ikp.sass.dataflow.free_registers import FreeRegisters, Spare
from ikp.sass.disassembly.control import SCOREBOARDS
from ikp.sass.disassembly.resources import bit

_WORDS = 4


class NoRoomError(PatchError):
    """Entry or exit have too few free registers: with more registers a thread, they may do."""


def leaving(
    room: FreeRegisters, frame: Frame, at: int, alone: bool, lender: Lender | None
) -> tuple[int, int, list[Step]]:
    """Return the scoreboards to wait for before an EXIT, a free one, and the header's code.

    Args:
        room: the free registers.
        frame: the reserved registers.
        at: the EXIT.
        alone: whether all threads of every warp leave there.
        lender: finds a pair for the descriptor of global memory, where none is reserved.

    Raises:
        NoRoomError: no registers are free there.
    """
    waits, spare = _free(room, at)
    rows, words = rows_of(spare), words_of(spare)
    if not (rows or words):
        raise NoRoomError(
            f"no registers are free for records where the kernel ends, at instruction {at}: "
            "its last stores may still read them."
        )
    address, *quads = rows or words
    predicates = spare.predicates[-2:]
    if not rows:
        steps = leave_by_words(frame, quads, address, predicates[-1])
    elif alone and frame.entered and len(predicates) == 2:
        steps = leave_together(frame, quads[-1], address, predicates)
    else:
        steps = leave(frame, quads, address, predicates[-1])
    pair = lender.to_leave(at, spare) if lender else None
    return waits, spare.scoreboards[-1], lent(steps, pair)


def unless_staying(room: FreeRegisters, at: int, steps: int) -> list[Step]:
    """Return the code by which threads that an EXIT lets go on skip so many steps.

    An EXIT may have two predicates, ``@P0 EXIT P1``: threads that lack one of them go on.
    """
    conditions = room.liveness.flow.code.instructions[at].conditions
    held = room.flight.states[at][:SCOREBOARDS]
    made = list[Step]()
    for number, each in enumerate(conditions, 1):
        name = each.lstrip("!")
        if name[0] != "P":
            raise PatchError(f"an EXIT has the predicate {each}, which is not known here.")
        late = sum(1 << board for board, bits in enumerate(held) if bits >> bit(name) & 1)
        over = forms.skip(steps + len(conditions) - number)
        made.append(over.when(int(name[-1]), holds=each.startswith("!")).after(late))
    return made


def _free(room: FreeRegisters, at: int) -> tuple[int, Spare]:
    """Return the scoreboards to wait for before an EXIT, and the registers that are free then."""
    held = room.flight.held(at)
    ways = ((0, room.at), (held, room.waited), (held, room.left))
    made = [(waits, free(at)) for waits, free in ways]
    return next(
        (each for enough in (rows_of, words_of) for each in made if enough(each[1])), made[0]
    )


def words_of(spare: Spare) -> list[int]:
    """Return the first register of a pair for an address, and four others; or an empty list."""
    if not (spare.predicates and spare.scoreboards and spare.pairs):
        return []
    pair = spare.pairs[-1]
    others = [each for each in spare.registers if each // 2 * 2 != pair]
    return [pair, *others[-_WORDS:]] if len(others) >= _WORDS else []


def rows_of(spare: Spare) -> list[int]:
    """Return the first registers of an address's pair and of up to four rows of four; or none."""
    if not (spare.predicates and spare.scoreboards):
        return []
    quads = list(spare.quads[-5:])
    pair = next((each for each in spare.pairs[::-1] if each // 4 * 4 not in quads), None)
    if pair is None and quads:
        pair = quads.pop(0)
    return [pair, *quads[-4:]] if pair is not None and quads else []
