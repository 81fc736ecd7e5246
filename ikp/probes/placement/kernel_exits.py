"""What stands before an EXIT: with which registers, and for whom."""

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
    """A kernel has no registers for what every kernel needs: with more of them, it has."""


def leaving(
    room: FreeRegisters, frame: Frame, at: int, alone: bool, lender: Lender | None
) -> tuple[int, int, list[Step]]:
    """Return what is waited for before an EXIT, a scoreboard, and what stores the header.

    Args:
        room: what is free where.
        frame: what the kernel keeps.
        at: the EXIT.
        alone: whether all threads of every warp leave there.
        lender: finds a pair for global memory, where none is kept.

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
    """Have threads that an EXIT lets go on skip so many steps, once it is known who does.

    An EXIT may have two predicates, ``@P0 EXIT P1``: who lacks one of them goes on.
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
    """Return what is free before an EXIT, and the scoreboards to be waited for there first."""
    held = room.flight.held(at)
    ways = ((0, room.at), (held, room.waited), (held, room.left))
    made = [(waits, free(at)) for waits, free in ways]
    return next(
        (each for enough in (rows_of, words_of) for each in made if enough(each[1])), made[0]
    )


def words_of(spare: Spare) -> list[int]:
    """Return a pair for an address, its first, and four other registers; or nothing."""
    if not (spare.predicates and spare.scoreboards and spare.pairs):
        return []
    pair = spare.pairs[-1]
    others = [each for each in spare.registers if each // 2 * 2 != pair]
    return [pair, *others[-_WORDS:]] if len(others) >= _WORDS else []


def rows_of(spare: Spare) -> list[int]:
    """Return a pair for an address and up to four rows of four, each its first; or nothing."""
    if not (spare.predicates and spare.scoreboards):
        return []
    quads = list(spare.quads[-5:])
    pair = next((each for each in spare.pairs[::-1] if each // 4 * 4 not in quads), None)
    if pair is None and quads:
        pair = quads.pop(0)
    return [pair, *quads[-4:]] if pair is not None and quads else []
