"""Instrumentation per role: reserved registers of its own for each role behind a setmaxnreg.

Some kernels leave no registers that are free in all their code. Where warps hand registers over
(setmaxnreg), each role has code of its own. Two roles seldom use up the same registers: one that
loads has few of each thread's own, one that multiplies few uniform ones. So each role has its own
reserved registers, and so does the code before them. A warp that comes to its role copies the
values from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ikp.core.abi import Language
from ikp.probes.code.reserved_registers import FIRST, PLACES, Frame
from ikp.probes.placement.entry_and_exits import NoRoomError
from ikp.probes.placement.instrumentation import Instrumenter
from ikp.probes.points.probe_points import ProbeRegion
from ikp.probes.points.sese_regions import Regions
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import NOP, Step
from ikp.sass.assembly.chips import Chip
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.dataflow.register_handover import Role, roles
from ikp.sass.insertion.displacement import Insertion
from ikp.sass.insertion.insert import OnEdge

_COUNTED: Final = NOP._replace(stall=12)
"""A NOP behind which the cursor's last addition can be read, for any code before it."""


@dataclass
class ByRole:
    """Inserts probes into such a kernel, as an ``Instrumenter`` does.

    Args:
        first: the instrumenter of the code before all roles.
        roles: each role with its instrumenter.
        notes: what is not recorded, and why.
    """

    first: Instrumenter
    roles: list[tuple[Role, Instrumenter]]
    notes: list[str]

    @property
    def frame(self) -> Frame:
        """The registers reserved from the entry on."""
        return self.first.frame

    @property
    def names(self) -> list[str]:
        """The names of all ranges."""
        return list(dict.fromkeys(name for each in self._instrumenters for name in each.names))

    @property
    def most(self) -> int | None:
        """How many records a warp makes; None where loops decide the number."""
        counts = [each.most for _, each in self.roles]
        known = [each for each in (self.first.most, *counts) if each is not None]
        return None if len(known) <= len(counts) else known[0] + max(known[1:])

    @property
    def margin(self) -> int:
        """How many records a warp may write behind the last that it keeps."""
        return max(each.margin for each in self._instrumenters)

    def insertions(self, name: str, language: Language) -> list[Insertion]:
        """Return all insertions; see ``Instrumenter``.

        Raises:
            PatchError: there are too few registers for entry or exits.
        """
        made = self.first.insertions(name, language)
        for role, instrumenter in self.roles:
            records = instrumenter.records()
            made += [self._handed_on(role, instrumenter), *records]
        self.notes += [note for each in self._instrumenters for note in each.notes]
        return made

    def on_edges(self) -> list[OnEdge]:
        """Return the probe code on the edges of jumps, once ``insertions`` has chosen it all."""
        return [edge for each in self._instrumenters for edge in each.on_edges()]

    def alone(self, beside: int) -> ByRole:
        """Return an instrumenter that has each warp store its header only; see ``Instrumenter``."""
        leaving = [(role, each.alone(beside)) for role, each in self.roles]
        return ByRole(self.first.alone(beside), leaving, [])

    @property
    def _instrumenters(self) -> Iterator[Instrumenter]:
        yield self.first
        yield from (each for _, each in self.roles)

    def _handed_on(self, role: Role, instrumenter: Instrumenter) -> Insertion:
        """Return the code that copies the reserved registers to those of a role.

        Stores of records may still read the registers that it writes: it waits for them.
        """
        its, spare = instrumenter.frame, instrumenter.room.at(role.entrance)
        if not spare.scoreboards or len(spare.registers) < len(_kept(its)):
            raise NoRoomError("too little is free where its warps hand registers over.")
        steps = _copied(_kept(self.first.frame), its, spare.registers)
        first = _COUNTED.after(self.first.boards)
        words = instrumenter.assembled([first, *steps], spare.scoreboards[-1])
        return Insertion(role.entrance, words, skipped=role.falls)


def by_role(
    room: FreeRegisters,
    places: Sequence[ProbeRegion],
    framed: Callable[[FreeRegisters], Frame | None],
    chip: Chip,
    regions: Regions,
) -> ByRole | None:
    """Return the instrumenter of a kernel by its roles; None where there can be none.

    Args:
        room: the free registers.
        places: the probe regions to record.
        framed: finds the reserved registers of a part of the kernel; None where too few are free.
        chip: the chip that the kernel is for.
        regions: knows where all threads of a warp are.
    """
    found = roles(room.liveness.flow)
    if not found:
        return None
    entrances, rows = frozenset(each.entrance for each in found), [each.rows for each in found]
    rest = frozenset(range(len(room.free))).difference(*rows)
    parts = [room.within(rest | entrances), *map(room.within, rows)]
    frames = [_stored(each) for part in parts if (each := framed(part)) is not None]
    if len(frames) < len(parts) or frames[0].own:
        return None
    split, notes = _split(places, [rest, *rows])
    made = [
        Instrumenter(part, frame, inside, chip=chip, regions=regions)
        for part, frame, inside in zip(parts, frames, split, strict=True)
    ]
    return ByRole(made[0], list(zip(found, made[1:], strict=True)), notes)


def _split(
    places: Sequence[ProbeRegion], codes: Sequence[frozenset[int]]
) -> tuple[list[list[ProbeRegion]], list[str]]:
    """Return the probe regions that lie in the code of one role; and a note on each in none."""
    split = [[each for each in places if _points(each) <= code] for code in codes]
    placed = {id(each) for inside in split for each in inside}
    across = (each for each in places if each.ends and id(each) not in placed)
    return split, [
        f"{each.name} is not recorded: more code than one role's is in it." for each in across
    ]


def _stored(frame: Frame) -> Frame:
    """Return a frame without the clocks at the entry, which are stored at once then."""
    return replace(frame, entered=())


def _points(place: ProbeRegion) -> frozenset[int]:
    return frozenset(each.index for each in (place.start, *place.ends))


def _kept(frame: Frame) -> tuple[int, ...]:
    # Blocks that store only headers make no record, and have no address for one.
    records = () if frame.behind is not None else (frame.records,)
    return (*records, frame.high, frame.room, frame.count, frame.header)


def _copied(kept: Sequence[int], frame: Frame, free: Sequence[int]) -> list[Step]:
    """Return the code that copies uniform registers to those of a frame.

    Both may share registers: all are read before one is written.
    """
    read, write = list[Step](), list[Step]()
    for source, into, register in zip(kept, _kept(frame), free, strict=False):
        own = into >= FIRST
        read.append(forms.from_uniform(frame.own[into - FIRST] if own else register, source))
        write += [] if own else [forms.to_uniform(into, register)]
    last = (
        [] if frame.lends else [forms.constant(frame.descriptor, 0, PLACES.descriptor, pair=True)]
    )
    return [*read, *write, *last]
