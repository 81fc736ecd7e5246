"""Instruments a kernel in its PTX, as far as its footprint on an SM allows, and has it assembled.

Records in PTX go through the assembler, which gives them registers. Where these are used up,
registers spill, or an SM has room for fewer blocks. So a search finds the most probe regions
without either; the dearest regions are left out. A footprint is read from the cubin: registers,
stack, and blocks per SM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ikp.core.abi import Language
from ikp.errors import PatchError
from ikp.probes.made_patch import Patch
from ikp.probes.patch import DETAILS, even
from ikp.probes.placement.register_choice import most_registers, resident
from ikp.probes.points import naming
from ikp.probes.points.probe_points import ProbeRegion
from ikp.ptx.body import Body
from ikp.ptx.record_insertion import PtxInsertion
from ikp.ptx.record_text import BlockShape
from ikp.ptx.spots import Spots
from ikp.sass.assembly.chips import CHIPS, HOPPER, Chip, State
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import AttributeCode
from ikp.sass.cubins.cubin import Cubin


@dataclass(frozen=True, slots=True)
class Footprint:
    """A thread's registers and stack, and how many blocks an SM has room for.

    ``warps`` is how many a block has; 0 where that is not known, and so neither are blocks.
    """

    registers: int
    stack: int  # bytes of local memory: what spills is there
    warps: int
    shared: int  # bytes of a block
    chip: Chip

    @classmethod
    def of(cls, cubin: bytes, name: str, warps: int, shared: int) -> Footprint:
        """Return the footprint of a kernel in a cubin.

        Args:
            cubin: the machine code.
            name: the kernel's.
            warps: of a block.
            shared: bytes of shared memory that a block is launched with.

        Raises:
            PatchError: it is no cubin that is known, or has no such kernel.
        """
        file = Cubin.read(cubin)
        kernel = file.kernel(name)
        info = file.elf.find(".nv.info")
        found = attributes.parse(info.data) if info is not None else []
        frames = [each.words for each in found if each.code == AttributeCode.FRAME_SIZE]
        stack = next((words[1] for words in frames if words[0] == kernel.symbol), 0)
        return cls(kernel.registers, stack, warps, shared, _chip(f"sm_{file.sm}"))

    @property
    def blocks(self) -> int:
        """How many blocks an SM has room for; 0 where that is not known."""
        if not self.warps:
            return 0
        return resident(self.registers, self.warps, self.shared, self.chip) // self.warps

    @property
    def most_registers(self) -> int:
        """The most registers a thread with which an SM has room for as many blocks."""
        return most_registers(self.registers, self.warps, self.shared, self.chip)

    def spills_beside(self, plain: Footprint) -> bool:
        """Whether more of a thread's registers spill than the plain kernel's."""
        return self.stack > plain.stack

    def crowds_beside(self, plain: Footprint) -> bool:
        """Whether an SM has room for fewer blocks than of the plain kernel."""
        return self.blocks < plain.blocks

    def worse_than(self, plain: Footprint) -> str:
        """Return a message on what a kernel with records loses to the plain one; "" for nothing."""
        if self.spills_beside(plain):
            return f"{self.stack - plain.stack} bytes of a thread's registers would spill"
        if self.crowds_beside(plain):
            return f"an SM would have room for {self.blocks} blocks, not {plain.blocks}"
        return ""


def _chip(name: str) -> Chip:
    """Return a chip by its name; one that is not known is taken for as large as sm_90."""
    unknown = replace(HOPPER, name=name, state=State.COMPILED)
    return next((each for each in CHIPS if each.name == name), unknown)


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
        insertion: inserts records into its PTX.
        plain: the plain kernel's footprint.
        assemble: makes machine code of PTX, as the plain kernel's was made.
    """

    insertion: PtxInsertion
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
                f"{self.insertion.body.code.name} leaves no room for records in its PTX: with none "
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
        plain, body = self.plain, self.insertion.body
        made = self._assembled(self.insertion, places)
        spills, crowds = made.footprint.spills_beside(plain), made.footprint.crowds_beside(plain)
        if crowds and not spills and not body.limits_registers:  # with fewer registers it may do
            narrow = body.with_head(f".maxnreg {plain.most_registers}")
            made = self._assembled(replace(self.insertion, body=narrow), places)
        why = made.footprint.worse_than(plain)
        return (None if why else made), why

    def _assembled(self, insertion: PtxInsertion, places: Sequence[ProbeRegion]) -> Thinned:
        text = insertion.text(places)
        cubin = self.assemble(text)
        takes = Footprint.of(cubin, insertion.body.code.name, self.plain.warps, self.plain.shared)
        return Thinned(text, cubin, tuple(places), takes)


def _dearness(place: ProbeRegion) -> tuple[int, bool, int, int]:
    """Return a sort key: coarse levels first; within a level, barriers and short regions last."""
    size = place.end.index - place.start.index if place.end else 0
    return place.level, place.kind == "barrier", -size, place.start.index


def _message(left: Sequence[ProbeRegion], why: str) -> str:
    return f"not recorded, since with more records {why}: {naming.some(p.name for p in left)}."


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
    shape = BlockShape(body.block or block, select)
    before = Footprint.of(plain, name, shape.warps, shared)
    level = DETAILS[detail]
    wanted = [place for place in spots.at(level) if place.end is not None]
    made = Thinning(PtxInsertion(body, shape, language), before, assemble).most(wanted)
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
