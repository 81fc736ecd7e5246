"""Patches a kernel of a cubin: places probes, inserts them, and has the verifier check them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

import numpy as np

from ikp.core import abi
from ikp.core.abi import Language
from ikp.core.segment import EVERYTHING, Selection
from ikp.errors import KernelError, PatchError
from ikp.probes.code.entry_code import CELL, CELL_BYTES
from ikp.probes.code.reserved_registers import Cell, Frame
from ikp.probes.code.selection_code import SELECTION_BYTES
from ikp.probes.made_patch import Patch
from ikp.probes.placement.by_role import ByRole, by_role
from ikp.probes.placement.entry_and_exits import NoRoomError
from ikp.probes.placement.instrumentation import Instrumenter
from ikp.probes.placement.record_batches import NotAllError
from ikp.probes.placement.register_choice import (
    block_size,
    cost,
    frame,
    register_counts,
    resident,
    warps_of,
)
from ikp.probes.points.budget import Budget, Pace
from ikp.probes.points.chosen_lines import ChosenLines
from ikp.probes.points.chosen_ranges import Choice
from ikp.probes.points.probe_points import Level, ProbeRegion, ProbeRegions
from ikp.probes.points.sese_regions import Regions
from ikp.sass.assembly.chips import HOPPER, Chip, chip_of
from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.capacity import LANES, add_argument, add_constant, set_registers
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.extra_argument import ExtraArgument
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.dataflow.free_registers import RESERVED, FreeRegisters
from ikp.sass.dataflow.idioms import addressed, asserts, called, spare_argument
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.reading import check_targets, code_of
from ikp.sass.dataflow.register_handover import hands_over
from ikp.sass.disassembly.listing import Code
from ikp.sass.insertion.displacement import Displacement, Insertion
from ikp.sass.insertion.insert import OnEdge, PlainCode, insert
from ikp.uncollected import uncollected
from ikp.verifier.declared import Declared
from ikp.verifier.verify import verify

_TOGETHER = "So blocks that are not chosen run the code with records, and keep none."
_ALL = "So all its blocks record: no sample is taken of them."


@dataclass(frozen=True)
class Apart:
    """The code of blocks that are not chosen, and whether the choice of blocks still holds.

    Where a kernel can't be in the cubin twice, all its blocks run the code with probes. Those that
    are not chosen keep no record then. But a sample is dropped: all blocks record.
    """

    chosen: Selection | None = None  # the choice, if the other blocks have code of their own
    code: PlainCode | None = None
    together: bool = False  # all blocks run one code, which heeds the choice
    notes: tuple[str, ...] = ()

    @property
    def sample(self) -> Selection:
        """The choice, if it is a sample."""
        chosen = self.chosen
        return chosen if chosen is not None and chosen.others else EVERYTHING

    def with_headers(
        self, cubin: bytes, name: str, language: Language, instrumenter: Instrumenter | ByRole
    ) -> Apart:
        """Return the same with code in which each warp stores its header, if a sample is taken.

        Args:
            cubin: the file, as the compiler wrote it.
            name: the kernel's.
            language: the kernel language that it was written in.
            instrumenter: that of the recording blocks; this code reserves the same registers.
        """
        if self.sample == EVERYTHING:
            return self
        beside = abi.DENSE_HEADER_BYTES + abi.RECORD_BYTES * instrumenter.margin
        alone = instrumenter.alone(beside)
        file = Cubin.read(cubin)
        try:
            insert(file, name, alone.insertions(name, language))
            return replace(self, code=PlainCode.of(file, file.kernel(name)))
        except PatchError as error:
            return Apart(notes=(f"{error} {_ALL}",))


def _other_blocks(file: Cubin, kernel: Kernel, chosen: Selection | None) -> Apart:
    """Return the code of blocks that are not chosen, by a choice that is made once.

    Args:
        file: the plain cubin.
        kernel: its kernel.
        chosen: the blocks that record; None where there is no choice.
    """
    if chosen is None:
        return Apart()
    try:
        return Apart(chosen, PlainCode.of(file, kernel))
    except PatchError as error:
        if chosen.others:
            return Apart(notes=(f"{error} {_ALL}",))
        return Apart(together=True, notes=(f"{error} {_TOGETHER}",))


_MOST_CALLED: Final = 3
"""The most functions that a refusal names: a kernel compiled for a debugger (-G) calls dozens."""
DETAILS: Final = {level.name.lower(): level for level in Level}


@uncollected()
def patch(
    cubin: bytes,
    name: str,
    *,
    detail: str = "loops",
    ptx: str = "",
    language: Language = Language.OTHER,
    block: tuple[int, int, int] | None = None,
    lines: Sequence[ChosenLines] = (),
    functions: Sequence[str] = (),
    ranges: bool = False,
    max_overhead: float | None = None,
    shared: int = 0,
    untested: bool = False,
    select: bool = False,
    blocks: Selection | None = None,
    argue: bool = False,
    spare: bool = False,
    flat: bool = False,
    sure: bool = False,
) -> Patch:
    """Insert probes into a kernel.

    Args:
        cubin: the file that the compiler wrote.
        name: the kernel's name in it.
        detail: how much is recorded: "kernel", "loops", "waits" or "ops".
        ptx: the kernel's PTX, for the lines that the cubin has wrong.
        language: the kernel language that it was written in.
        block: threads of a block in each dimension, where the kernel does not say.
        lines: chosen lines of its source, which get ranges of their own.
        functions: names of functions, whose lines are chosen, too.
        ranges: whether the ranges that its source names are recorded, where their lines' code is.
        max_overhead: the ratio to the plain kernel, 1.05, that records are expected to stay within.
        shared: bytes of shared memory that a block is launched with, where that is known.
        untested: whether to patch for chips on which patched kernels were never run.
        select: whether sessions choose, launch by launch, which warps and blocks record.
        blocks: which blocks record, with all their warps, where that is chosen once. The other
            blocks run the plain kernel's code, if it can be in the cubin twice. If not, the choice
            is as with ``select``; or, where the others are to write slot headers (when and where
            they ran), all blocks record. All do, too, where the kernel has no range but itself.
        argue: whether the launcher can pass one more argument, which holds the cell.
        spare: whether the last 16 bytes of its arguments may hold the cell, where it reads none of
            them.
        flat: whether it is launched with blocks in one dimension alone.
        sure: whether each launch has slots for all its warps, or room for no record.

    Raises:
        VerifyError: the patched code is not the kernel and probes; see ``ikp.verifier``.
        PatchError: the kernel, or its chip, is not known well enough.
        KernelError: no chosen line or function has code in it.
        InspectError: there is no disassembler, or it refuses the file.
    """
    kernel = (file := Cubin.read(cubin)).kernel(name)
    chip = chip_of(file.sm, kernel, untested=untested)
    code = kernel_code(file, kernel, code_of(cubin, file, name))
    size, before = block_size(kernel) or list(block or ()), kernel.registers
    warps = warps_of(math.prod(size)) if size else None
    tried = [before] if hands_over(code.flow) else register_counts(before, warps, chip)
    chosen = tuple(lines), tuple(functions)
    places = ProbeRegions(code.flow, ptx, *chosen, named=ranges, rows=_in_rows(size))
    unplaced = _unplaced(places, DETAILS[detail])
    room = resident(tried[0], warps or 1, shared, chip)
    wanted, expected = _wanted(places, DETAILS[detail], max_overhead, room)
    apart = _other_blocks(file, kernel, _worth_it(blocks, wanted))
    select, blocks = select or apart.together, apart.chosen
    nbytes = CELL_BYTES + SELECTION_BYTES * select
    argument = _argument(file, code, nbytes, chip, argue, spare)
    cell = _cell(file, nbytes, argument)
    setting = _Setting(cell, size, language, chip, places.regions, select, blocks, flat, sure)
    free = FreeRegisters(code)
    count, instrumenter, added = _instrumented(free, wanted, tried, setting)
    if (apart := apart.with_headers(cubin, name, language, instrumenter)).chosen != blocks:
        setting = replace(setting, blocks=apart.chosen)
        count, instrumenter, added = _instrumented(free, wanted, tried, setting)
    if count > before:
        set_registers(file, name, count)
    inserted, beside = _insert(file, name, added, instrumenter.on_edges(), apart.code)
    records = instrumenter.most, instrumenter.margin
    fewer = cost(warps, before, count, chip)
    declared = Declared(name, count, inserted, beside, *_cell_of(cell, argument, chip, nbytes))
    patched = file.write()
    verify(cubin, patched, code.flow.code, declared)
    return Patch(
        *(patched, tuple(instrumenter.names), warps or 0, (before, count), even(*records)),
        notes=(*chip.notes, *apart.notes, *fewer, *unplaced, *instrumenter.notes),
        messages=(*expected, *_messages(places)),
        ours=inserted,
        plain=beside,
        select=select,
        sample=apart.sample,
        argument=argument,
        cell_counts_records=instrumenter.frame.near,
        margin=instrumenter.margin,
        fewer_blocks=bool(fewer),
        declared=declared,
        sources=tuple(sorted(code.flow.code.files)),
    )


def _argument(
    file: Cubin, code: Liveness, nbytes: int, chip: Chip, argue: bool, spare: bool
) -> ExtraArgument | None:
    """Return the kernel argument that can hold a cell of so many bytes; None where none can."""
    name, listed = code.flow.code.name, code.flow.code.instructions
    if spare and (found := spare_argument(file.kernel(name), listed, nbytes, chip.parameters)):
        return found
    return add_argument(file, name, nbytes, chip.parameters) if argue else None


def _cell(file: Cubin, nbytes: int, argument: ExtraArgument | None) -> Cell:
    """Return the cell: in a kernel argument, or else in constants added to the module."""
    if argument is not None:
        return Cell(0, HOPPER.parameters + argument.offset)
    return Cell(3, add_constant(file, CELL, nbytes))


def _cell_of(
    cell: Cell, argument: ExtraArgument | None, chip: Chip, nbytes: int
) -> tuple[int, int, int, int | None]:
    """Return a cell as a patch declares it: bank, offset, bytes, and the argument's number."""
    offset = chip.offset_of(cell.offset) if cell.bank == 0 else cell.offset
    return cell.bank, offset, nbytes, None if argument is None else argument.ordinal


def _insert(
    file: Cubin, name: str, added: list[Insertion], edges: list[OnEdge], plain: PlainCode | None
) -> tuple[tuple[tuple[int, int], ...], tuple[int, int] | None]:
    """Insert code into a kernel, and the plain kernel's beside it if there is one.

    Returns:
        Which instructions were inserted, and which are the plain kernel's.
    """
    if plain is not None:  # the first insertion ends in the branch over the plain code
        added[0] = plain.behind(added[0].words, file.sm)
    moved = insert(file, name, added, edges)
    if plain is not None:
        plain.follow(file, name, added[0])
    inserted = ours(moved, len(file.kernel(name).words) if edges else moved.count)
    return tuple(inserted), None if plain is None else plain.span_of(added[0])


def _in_rows(size: Sequence[int]) -> bool:
    """Whether the threads of each warp are known to lie in one row of their block."""
    return bool(size) and size[0] % LANES == 0


def _wanted(
    places: ProbeRegions, level: Level, most: float | None, resident: int
) -> tuple[list[ProbeRegion], list[str]]:
    """Return the probe regions to record, and a message on their cost if that is bounded."""
    wanted = places.at(level)
    if most is None:
        return wanted, []
    kept, *expected = Budget(places, Pace.of(places, resident), most).keep(wanted)
    return kept, expected


def _worth_it(blocks: Selection | None, wanted: Sequence[ProbeRegion]) -> Selection | None:
    """Return the choice of blocks, or None: all record, where headers alone are written anyway.

    A sample's other blocks write headers, too, and these hold all of a kernel's own range.
    """
    more = any(place.kind != "kernel" for place in wanted)
    return None if blocks is not None and blocks.others and not more else blocks


def kernel_code(file: Cubin, kernel: Kernel, listed: Code) -> Liveness:
    """Return a kernel's code with its liveness, once its calls are known to be its own."""
    name, flow = kernel.name, Flow(listed)
    check_targets(file, kernel, listed)
    code = Liveness(flow, asserts(file, flow), addressed(kernel, listed.instructions))
    if code.leaving_calls:
        names = {called(file, code.flow, at) or "by its address" for at in code.leaving_calls}
        more = max(0, len(names) - _MOST_CALLED)
        shown = [*sorted(names)[:_MOST_CALLED], *([f"and {more} more"] if more else [])]
        raise PatchError(
            f"{name} calls code that is not its own ({', '.join(shown)}): which registers "
            f"that uses is not known.{_printing(code, names)}{_unoptimised(file)}"
        )
    return code


def _printing(code: Liveness, names: set[str]) -> str:
    """Return words on prints of a kernel; empty where it makes none."""
    if _PRINTS not in names:
        return ""
    instructions = code.flow.code.instructions
    lines = [line for at in code.leaving_calls for line in instructions[at].lines[:1]]
    where = f" (@{PurePath(lines[0].file).name}:{lines[0].number})" if lines else ""
    return (
        f" It prints{where}: a print costs a kernel time though it never runs, since values are "
        "kept in registers that a call leaves alone, and nothing is moved across it. Take it out."
    )


_PRINTS: Final = "vprintf"


_DEBUG: Final = ".nv_debug_info_reg_sass"
"""A section that only code without optimisation has: where each variable is, at each moment."""


def _unoptimised(file: Cubin) -> str:
    """Return words on a file that was compiled for a debugger; empty of another."""
    if all(each.name != _DEBUG for each in file.elf.sections):
        return ""
    return (
        " The file is compiled for a debugger (-G): no function is inlined, and the kernel is many "
        "times slower. Compile it with -lineinfo in place of -G."
    )


def ours(moved: Displacement, count: int) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of inserted code: between the kernel's instructions, and behind all."""
    ends = np.concatenate([[0], moved.new[:-1] + 1])
    for at in np.flatnonzero(ends < moved.new).tolist():
        yield int(ends[at]) * BYTES, int(moved.new[at]) * BYTES
    if moved.count < count:
        yield moved.count * BYTES, count * BYTES


def _unplaced(places: ProbeRegions, level: Level) -> list[str]:
    """Return why some chosen lines, functions and named ranges, and loops, have no probe region.

    Raises:
        KernelError: no chosen line or function has one.
    """
    missing = _missing(places.choices)
    if missing and len(missing) == len(places.choices):
        raise KernelError(" ".join(missing))
    missing += _missing(places.named_ranges)
    refused = places.refused if places.asked_for else ()
    overlapping = [f"{place.name}: {why}." for place, why in refused if place.kind == "lines"]
    return [*missing, *overlapping, *(places.left_out if level else ())]


def _missing(chosen: Sequence[Choice]) -> list[str]:
    """Return the messages on those that have no probe region."""
    return [each.message for each in chosen if each.piece is None]


def _messages(places: ProbeRegions) -> Iterator[str]:
    """Yield what is said of chosen lines, functions and named ranges that have a probe region."""
    return (each.message for each in places.asked_for if each.piece and each.message)


@dataclass(frozen=True, slots=True)
class _Setting:
    """What a kernel's probes depend on beside its code: cell, block size, chip, selection."""

    cell: Cell
    size: list[int]  # threads of a block; [] where that is not known
    language: Language
    chip: Chip
    regions: Regions
    select: bool
    blocks: Selection | None
    flat: bool
    sure: bool
    gather: bool = True  # whether records may be stored at once

    def framed(self, room: FreeRegisters, *, near: bool = False) -> Frame | None:
        """Return the reserved registers for some code; None where too few are free."""
        one_way = warps_of(self.size[0]) if self.size[1:] == [1, 1] else None
        made = frame(room, one_way, self.cell, self.chip, near=near)
        selection = self.cell.beyond(CELL_BYTES) if self.select else None
        return made and replace(
            made, flat=self.flat, sure=self.sure, blocks=self.blocks, selection=selection
        )


def _instrumented(
    free: FreeRegisters, places: list[ProbeRegion], counts: list[int], setting: _Setting
) -> tuple[int, Instrumenter | ByRole, list[Insertion]]:
    """Return the first register count that suffices, the instrumenter, and its insertions."""
    room, size = free.counted(counts[0] - RESERVED), setting.size
    name = free.liveness.flow.code.name
    kept = setting.framed(room, near=not setting.select)
    if kept is None:
        if counts[1:]:
            return _instrumented(free, places, counts[1:], setting)
        roles = by_role(room, places, setting.framed, setting.chip, setting.regions)
        if roles is None:
            raise PatchError(_used_up(name, len(room.unused_uniform)))
        return counts[0], roles, roles.insertions(name, setting.language)
    rows = bool(size) and math.prod(size) % LANES == 0
    full = rows and setting.regions.divergent.isdisjoint(room.liveness.flow.graph.leaves)
    gather = rows and kept.near and setting.gather
    instrumenter = Instrumenter(room, kept, places, full, setting.chip, setting.regions, gather)
    try:
        return counts[0], instrumenter, instrumenter.insertions(name, setting.language)
    except NotAllError:
        return _instrumented(free, places, counts, replace(setting, gather=False))
    except NoRoomError:
        if not counts[1:]:
            raise
        return _instrumented(free, places, counts[1:], setting)


def _used_up(name: str, left: int) -> str:
    """Return the message for a kernel with too few free uniform registers."""
    return (
        f"{name} uses all its uniform registers but {left}; records need seven that it never "
        f"names, or one and some of each thread's own."
    )


def even(records: int | None, margin: int = 0) -> int | None:
    """Return the number of records to make room for, with a margin, made even.

    So a slot is a multiple of 32 bytes, the unit in which memory is written.
    """
    return None if records is None else max(2, records + margin + (records + margin) % 2)
