"""What single functions return, over many arguments: encodings, layouts, counts and names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from ikp.core.segment import Selection
from ikp.errors import IkpError
from ikp.probes.access_probes import _layout
from ikp.probes.code.access_code import WarpSample, number
from ikp.probes.code.selection_code import selection_words
from ikp.probes.placement import register_choice
from ikp.probes.points import naming
from ikp.probes.points.source_ranges import written
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import NOP, Step, assemble
from ikp.sass.assembly.chips import CHIPS, Chip
from ikp.sass.cubins.capacity import most_registers_of, warps_with
from ikp.sass.cubins.instruction import names_place
from ikp.sass.disassembly.listing import Line
from tests.goldens.corpus import SOURCES, sources
from tests.goldens.views import shown

_GRIDS = ((1, 1, 1), (7, 1, 1), (300, 2, 1), (5, 3, 7), (1, 64, 1), (70_000, 1, 2))
_BLOCKS = ((32, 1, 1), (128, 1, 1), (8, 4, 3), (1024, 1, 1), (33, 3, 1))
_CHOICES = (
    *(Selection(), Selection(warps=5), Selection(first_block=3), Selection(block_step=7)),
    *(Selection(2, 1, 3, 4), Selection(6, 0, 1 << 20, 9), Selection(block_count=1)),
)


def _tried(made: Callable[[], object]) -> str:
    """Return what is returned, or the refusal."""
    try:
        return shown(made())
    except (IkpError, ValueError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"


def opcodes() -> Iterator[str]:
    """Yield which opcodes name a place."""
    yield "".join(str(int(names_place(opcode))) for opcode in range(1 << 12))


def _steps() -> list[tuple[str, Step]]:
    """Return each instruction that probes are made of, with some operands."""
    found = []
    for name, make in sorted(vars(forms).items()):
        if (
            not inspect.isfunction(make)
            or name.startswith("_")
            or make.__module__ != forms.__name__
        ):
            continue
        wanted = inspect.signature(make)
        if wanted.return_annotation not in (Step, "Step"):
            continue
        needed = [each for each in wanted.parameters.values() if each.kind.name[0] == "P"]
        given = [_GIVEN.get(each.name, 4 + 2 * at) for at, each in enumerate(needed)]
        found.append((name, make(*given)))
    return found


_GIVEN = {
    "bank": 3,
    "offset": 0x18,
    "words": 2,
    "predicate": 2,
    "bits": 5,
    "value": 0x21,
    "steps": 1,
}
"""Operands of a kind, by their parameter."""


def encodings() -> Iterator[str]:
    """Yield the words of each instruction of probes, alone and behind each other, on each chip."""
    steps = _steps()
    for chip in CHIPS:
        yield f"{chip.name} {chip.warps} {chip.shared} {chip.parameters:#x} {shown(chip.notes)}"
        for name, step in steps:
            yield f"  {name} {_words(chip, [step, NOP, NOP])}"
        for at in range(0, len(steps) - 2, 2):
            some = [step for _, step in steps[at : at + 3] if not step.skips]
            yield f"  {at} {_words(chip, [*some, NOP.after(4), some[0]])}"


def _words(chip: Chip, steps: list[Step]) -> str:
    return _tried(lambda: [f"{word:032x}" for word in assemble(chip.fitted(steps), 2)])


def layouts() -> Iterator[str]:
    """Yield the tables of address probes, and the code that numbers their warps."""
    for grid, block in product(_GRIDS, _BLOCKS):
        for count in (1, 3, 40, 700):
            yield f"{grid} {block} {count} {_tried(partial(_table, count, grid, block))}"
        for bits in (0, 2):
            sample = WarpSample(grid, block, bits)
            steps = number(sample, 9, (4, 5, 6, 7, 8, 9), 3)
            words = [f"{word:032x}" for word in assemble(steps, 1)]
            yield f"  {sample.warps} {sample.blocks} {sample.slots} {shown(words)}"


def _table(count: int, grid: tuple[int, int, int], block: tuple[int, int, int]) -> object:
    sample, tables = _layout(count, grid, block)
    return sample, tables, tables.table_bytes, tables.slot_bytes


def counts() -> Iterator[str]:
    """Yield how many registers and warps there is room for."""
    for chip, registers in product(CHIPS, (8, 24, 32, 33, 40, 64, 96, 128, 168, 255)):
        for warps in (None, 1, 3, 4, 8, 12, 24, 32):
            tried = register_choice.register_counts(registers, warps, chip)
            cost = register_choice.cost(warps, registers, tried[-1], chip)
            yield f"{chip.name} {registers} {warps} {shown(tried)} {shown(cost)}"
            for shared in (0, 999, 40_000, 99 << 10):
                room = register_choice.resident(registers, warps or 1, shared, chip)
                most = register_choice.most_registers(registers, warps or 1, shared, chip)
                yield f"  {shared} {room} {most}"
    yield shown([(warps_with(each), most_registers_of(each % 64 + 1)) for each in range(1, 256)])
    yield shown([register_choice.warps_of(each) for each in range(1, 200)])
    for choice, warps in product(_CHOICES, (1, 3, 8, 32)):
        yield f"{shown(choice)} {warps} {shown(selection_words(choice, warps))}"


def names() -> Iterator[str]:
    """Yield the ranges that sources name, and what their lines are called."""
    for path in sorted((sources() / SOURCES).iterdir()):
        file = f"{SOURCES}/{path.name}"
        for each in written(file):
            yield f"{type(each).__name__} {shown(tuple(each))}"
        for at, text in enumerate(path.read_text("utf-8").splitlines(), 1):
            if not text.strip():
                continue
            here, around = Line(file, at), Line(file, max(1, at - 9))
            chains = (
                [(here,)],
                [(here, around)],
                [(here,), (around,)],
                [(Line("gone.py", at), here)],
            )
            for chain in chains:
                titled = naming.title("load", chain, " (about)"), naming.title("dot", chain)
                yield f"{at} {titled} {naming.variable(chain)!r} {naming.waited(chain)!r}"
            yield f"  {shown(naming.original(here))}"
    yield shown(
        [naming.is_library(each) for each in ("triton/language/a.py", "a.py", "/x/cute/b.py")]
    )
    yield naming.some(str(each % 11) for each in range(40))


FUNCTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "opcodes": opcodes,
    "encodings": encodings,
    "layouts": layouts,
    "counts": counts,
    "names": names,
}
"""By name."""
