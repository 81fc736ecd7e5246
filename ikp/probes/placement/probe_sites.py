"""Where code is put into a kernel, and what is put there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ikp.probes.code.reserved_registers import Scratch
from ikp.probes.placement.scratch_registers import used
from ikp.probes.points.sese_regions import Point
from ikp.sass.assembly.assembler import PT, Resource, Step
from ikp.sass.disassembly.resources import R

TAKEN: Final = 2


class Site(NamedTuple):
    """Where code is put: before an instruction, or on the way that a jump leads."""

    index: int  # type: ignore[assignment]  # nobody looks for a value in a site
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

        Nothing where clocks alone are read, into registers kept for them; nor where a record waits
        for others to be stored with, and whatever reads its words next reads a clock first.
        """
        if self.stores and self.scratch.gathered is not None:
            return "" if self.scratch.predicate == PT else "RUP"  # the count is read again soon
        return "RP" if self.stores or self._more else ""

    @property
    def clocks_alone(self) -> bool:
        """Whether all that is done is to read clocks into registers kept for them."""
        return not (self.stores or self.led or self._more)

    @property
    def _more(self) -> bool:
        """Whether more is done than that, beside what is led."""
        return len(self.steps) - self.led > self.kept.bit_count()


def written(run: Run) -> int:
    """Return the threads' registers that a run writes, as bits, but for those that starts have."""
    saved = 0 if run.scratch.saved is None else 1 << R.first + run.scratch.saved
    return 1 << R.first + run.scratch.last | saved | (used(run.scratch) if run.stores else 0)
