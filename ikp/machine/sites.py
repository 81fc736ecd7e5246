"""Where code is put into a kernel, and what is put there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ikp.machine.assembler import Resource, Step
from ikp.machine.keeping import Scratch
from ikp.machine.stretches import Point

TAKEN: Final = 2


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """Where code is put: before an instruction, or on the way that a jump leads."""

    index: int
    rank: int  # 0 for those that fall, 1 for all, TAKEN for those that jump from there, or leave

    @classmethod
    def of(cls, point: Point) -> Site:
        """Return where a point's code is put."""
        if point.taken:
            return cls(point.index, TAKEN)
        return cls(point.index + 1, 0) if point.after else cls(point.index, 1)


@dataclass(slots=True)
class Run:
    """What is put at one site."""

    scratch: Scratch
    steps: list[Step] = field(default_factory=list)
    stores: bool = False
    kept: int = 0  # threads' registers that starts are kept in, as bits
    begun: int = 0  # those that starts of ranges which end here were kept in
    stored: int = 0  # of these, those that are stored from there
    late: dict[Resource, int] = field(default_factory=dict)  # starts that are on their way, still

    led: int = 0  # how many steps find out what later records share

    @property
    def settled(self) -> str:
        """The files of registers in which all must be there when the run is over: see ``assemble``.

        Nothing where clocks alone are read, into registers kept for them.
        """
        return "RP" if self.stores or len(self.steps) - self.led > self.kept.bit_count() else ""

    @property
    def clocks_alone(self) -> bool:
        """Whether all that is done is to read clocks into registers kept for them."""
        return not (self.settled or self.led)
