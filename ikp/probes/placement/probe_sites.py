"""``Site`` and ``SiteCode``: a position for probe code in a kernel's machine code, and the steps
and registers of the code there.
"""

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
    """A position for probe code: before an instruction, or on the edge of a jump."""

    index: int  # type: ignore[assignment]  # no code calls the tuple's ``index``
    rank: int  # threads that run it: 0: that fall there; 1: all; TAKEN: that jump from it, or leave

    @classmethod
    def of(cls, point: Point) -> Site:
        """Return the site of a probe point."""
        if point.taken:
            return cls(point.index, TAKEN)
        return cls(point.index + 1, 0) if point.after else cls(point.index, 1)


@dataclass(slots=True)
class SiteCode:
    """The probe code at one site."""

    scratch: Scratch
    steps: list[Step] = field(default_factory=list)
    stores: bool = False
    kept: int = 0  # threads' registers that starts are kept in, as bits
    begun: int = 0  # start slots of the ranges that end here, as bits
    stored: int = 0  # of these, those that are stored from there
    late: dict[Resource, int] = field(default_factory=dict)  # starts that are on their way, still

    led: int = 0  # how many steps compute the address and predicate of later records

    @property
    def settled(self) -> str:
        """The register files whose values must be there when the code is over: see ``assemble``.

        None where only clocks are read, into registers kept for them; nor where a gathered record
        waits for others: the probe that reads its words next reads a clock first.
        """
        if self.stores and self.scratch.gathered is not None:
            return "" if self.scratch.predicate == PT else "RUP"  # the cursor is read again soon
        return "RP" if self.stores or self._more else ""

    @property
    def clocks_alone(self) -> bool:
        """Whether the code only reads clocks into registers kept for them."""
        return not (self.stores or self.led or self._more)

    @property
    def _more(self) -> bool:
        """Whether the code has more steps than those, and than those in ``led``."""
        return len(self.steps) - self.led > self.kept.bit_count()


def written(run: SiteCode) -> int:
    """Return the threads' registers that a site's code writes, as bits, but for start slots."""
    saved = 0 if run.scratch.saved is None else 1 << R.first + run.scratch.saved
    return 1 << R.first + run.scratch.last | saved | (used(run.scratch) if run.stores else 0)
