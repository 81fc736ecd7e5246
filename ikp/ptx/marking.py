"""Instruments a kernel in its PTX, and has it assembled: where its cubin can't be patched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ikp.core.abi import Language
from ikp.errors import PatchError
from ikp.probes.made_patch import Patch
from ikp.probes.patch import DETAILS, even
from ikp.probes.points.probe_points import ProbeRegion
from ikp.ptx.body import Body
from ikp.ptx.footprint import Footprint
from ikp.ptx.record_text import Shape
from ikp.ptx.spots import Spots
from ikp.ptx.thinning import Thinning
from ikp.ptx.weaving import Weaving


@dataclass(frozen=True, slots=True)
class MarkedPtx:
    """A kernel assembled with records in its PTX, and that PTX."""

    patch: Patch
    text: str


def mark(
    ptx: str,
    plain: bytes,
    name: str,
    assemble: Callable[[str], bytes],
    *,
    detail: str = "loops",
    language: Language = Language.OTHER,
    block: tuple[int, int, int] | None = None,
    shared: int = 0,
    select: bool = False,
) -> MarkedPtx:
    """Insert records into a kernel's PTX, and have it assembled.

    Args:
        ptx: the plain kernel's.
        plain: its machine code.
        name: the kernel's.
        assemble: makes machine code of PTX, as the plain kernel's was made.
        detail: one of ``DETAILS``.
        language: the kernel language that it was written in.
        block: threads of a block in each dimension, where the kernel does not say.
        shared: bytes of shared memory that a block is launched with, where that is known.
        select: whether sessions choose, launch by launch, which warps and blocks record.

    Raises:
        PatchError: the PTX is not known well enough, or has no room for records.
    """
    if not ptx:
        raise PatchError(f"{name} was loaded without its PTX: there is nothing to mark.")
    body = Body.read(ptx, name)
    spots = Spots(body)
    shape = Shape(body.block or block, select)
    before = Footprint.of(plain, name, shape.warps, shared)
    level = DETAILS[detail]
    wanted = [place for place in spots.at(level) if place.end is not None]
    made = Thinning(Weaving(body, shape, language), before, assemble).most(wanted)
    names = dict.fromkeys([name, *(place.name for place in made.places)])
    registers = before.registers, made.footprint.registers
    patch = Patch(
        *(made.cubin, tuple(names), shape.warps),
        registers=registers,
        most=_most(spots, made.places),
        notes=(
            _another(*registers),
            *before.chip.notes,
            *filter(None, [made.message]),
            *(spots.left_out if level else ()),
        ),
        cell_counts_records=True,
        select=select,
    )
    return MarkedPtx(patch, made.text)


def _another(before: int, after: int) -> str:
    registers = f"{before} registers a thread" + ("" if after == before else f" -> {after}")
    return (
        "its marks are in its PTX, assembled again: another cubin than the plain kernel's "
        f"({registers})."
    )


def _most(spots: Spots, places: Sequence[ProbeRegion]) -> int | None:
    """Return for how many records a warp should have room; None where loops decide the number."""
    looped = {block for body in spots.flow.bodies.values() for block in body}
    ends = [spots.regions.block(place.end) for place in places if place.end]
    if looped.intersection(ends):
        return None
    return even(len(places))
