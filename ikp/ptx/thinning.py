"""Search for the most probe regions that a PTX kernel can record without spills or lost blocks.

Records in PTX go through the assembler, which gives them registers. Where these are used up,
registers spill, or an SM has room for fewer blocks: then the dearest regions are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ikp.errors import PatchError
from ikp.probes.points import naming
from ikp.probes.points.probe_points import ProbeRegion
from ikp.ptx.footprint import Footprint
from ikp.ptx.weaving import Weaving


@dataclass(frozen=True, slots=True)
class Thinned:
    """A kernel that records as many probe regions as it has room for."""

    text: str
    cubin: bytes
    places: tuple[ProbeRegion, ...]
    footprint: Footprint
    message: str = ""  # a message on the regions left out, and why


@dataclass(frozen=True)
class Thinning:
    """Finds the most probe regions of one kernel that can be recorded.

    Args:
        weaving: inserts records into its PTX.
        plain: the plain kernel's footprint.
        assemble: makes machine code of PTX, as the plain kernel's was made.
    """

    weaving: Weaving
    plain: Footprint
    assemble: Callable[[str], bytes]

    def most(self, places: Sequence[ProbeRegion]) -> Thinned:
        """Return the kernel with as many of the regions as cost no spill and no block.

        Raises:
            PatchError: even the kernel's own range costs one.
        """
        ordered = sorted(places, key=_dearness)
        found, why = self._tried(ordered)
        if found is not None:
            return found
        least, why_not = self._tried([])
        if least is None:
            raise PatchError(
                f"{self.weaving.body.code.name} leaves no room for records in its PTX: with none "
                f"but its own range, {why_not}."
            )
        fits, too_many = 0, len(ordered)
        while too_many - fits > 1:
            count = (fits + too_many) // 2
            found, because = self._tried(ordered[:count])
            if found is None:
                too_many, why = count, because
            else:
                fits, least = count, found
        return replace(least, message=_message(ordered[fits:], why))

    def _tried(self, places: Sequence[ProbeRegion]) -> tuple[Thinned | None, str]:
        """Return the kernel with these regions recorded; or None, and what it loses with them."""
        plain, body = self.plain, self.weaving.body
        made = self._assembled(self.weaving, places)
        spills, crowds = made.footprint.spills_beside(plain), made.footprint.crowds_beside(plain)
        if crowds and not spills and not body.limits_registers:  # with fewer registers it may do
            narrow = body.with_head(f".maxnreg {plain.most_registers}")
            made = self._assembled(replace(self.weaving, body=narrow), places)
        why = made.footprint.worse_than(plain)
        return (None if why else made), why

    def _assembled(self, weaving: Weaving, places: Sequence[ProbeRegion]) -> Thinned:
        text = weaving.text(places)
        cubin = self.assemble(text)
        takes = Footprint.of(cubin, weaving.body.code.name, self.plain.warps, self.plain.shared)
        return Thinned(text, cubin, tuple(places), takes)


def _dearness(place: ProbeRegion) -> tuple[int, bool, int, int]:
    """Return a sort key: coarse levels first; within a level, barriers and short regions last."""
    size = place.end.index - place.start.index if place.end else 0
    return place.level, place.kind == "barrier", -size, place.start.index


def _message(left: Sequence[ProbeRegion], why: str) -> str:
    return f"not recorded, since with more records {why}: {naming.some(p.name for p in left)}."
