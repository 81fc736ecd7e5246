"""Views of a kernel: what each analysis says of its code, as lines of text.

A view holds no name of ikp's code but what a user may see: instructions go by their index,
registers by their name. So code may move, and views stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ikp.errors import IkpError
from ikp.probes import suspects
from ikp.probes.placement import register_choice
from ikp.probes.points.budget import Budget, Pace
from ikp.probes.points.probe_points import Level, ProbeRegions
from ikp.sass.assembly.chips import Chip, chip_of
from ikp.sass.control_flow.flow import Flow, collective_bodies
from ikp.sass.cubins import module_memory
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.instruction import PASSED
from ikp.sass.cubins.source_lines import UnknownTableError, source_lines
from ikp.sass.dataflow import idioms
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.dataflow.free_registers import RESERVED, FreeRegisters, Spare
from ikp.sass.dataflow.influence import Influence
from ikp.sass.dataflow.lane_state import LaunchValues, Shape, Value
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.reading import code_of
from ikp.sass.dataflow.register_handover import registers_at, roles
from ikp.sass.disassembly.effects import UP, UR, P, R, bits_of, effects, members
from ikp.sass.disassembly.memory_operands import GLOBAL, LOCAL, SHARED, accesses
from ikp.sass.disassembly.opcodes import landmark, lane_bytes, unit_of, work_of
from ikp.sass.disassembly.values import definitions
from ikp.sass.insertion.displacement import Insertion
from ikp.sass.insertion.insert import OnEdge, insert

_FILES = (("R", R), ("P", P), ("UR", UR), ("UP", UP))


@dataclass(frozen=True)
class Subject:
    """A kernel that is looked at."""

    cubin: bytes
    name: str
    ptx: str = ""

    @property
    def number(self) -> str:
        """What tells it from others of its name."""
        return str(len(self.cubin))

    @cached_property
    def file(self) -> Cubin:
        """The cubin, parsed."""
        return Cubin.read(self.cubin)

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel in it."""
        return self.file.kernel(self.name)

    @cached_property
    def flow(self) -> Flow:
        """Its control flow."""
        return Flow(code_of(self.cubin, self.file, self.name))

    @cached_property
    def chip(self) -> Chip:
        """What it is for."""
        return chip_of(self.file.sm, self.kernel, untested=True)

    @cached_property
    def registers(self) -> int:
        """How many registers its threads have."""
        return self.kernel.registers

    @cached_property
    def liveness(self) -> Liveness:
        """Its live registers."""
        ending = idioms.asserts(self.file, self.flow)
        return Liveness(
            self.flow, ending, idioms.addressed(self.kernel, self.flow.code.instructions)
        )


def shown(value: object) -> str:
    """Return a value as text: the same for equal values, whatever they are kept in."""
    if isinstance(value, np.ndarray):
        return shown(value.tolist())
    for kind, text in _TEXTS.items():
        if isinstance(value, kind):
            return text(value)
    if is_dataclass(value) and not isinstance(value, type):
        return f"({' '.join(shown(getattr(value, each.name)) for each in fields(value))})"
    if isinstance(value, Iterable):
        return "[" + " ".join(map(shown, value)) + "]"
    return str(value)


_TEXTS: dict[type, Callable[[Any], str]] = {
    Enum: lambda each: str(each.value),
    str: str,
    float: lambda each: f"{each:.9g}",
    bytes: bytes.hex,
    Mapping: lambda each: f"{{{' '.join(f'{shown(k)}:{shown(each[k])}' for k in sorted(each))}}}",
    AbstractSet: lambda each: f"{{{_ranges(each)}}}",
}
"""How values of a type are written."""


def _ranges(some: AbstractSet[object]) -> str:
    """Return members of a set, runs of numbers as ``3-9``."""
    if not all(isinstance(each, (int, np.integer)) for each in some):
        return " ".join(sorted(map(shown, some)))
    found: list[list[int]] = []
    for each in sorted(int(str(one)) for one in some):
        if found and found[-1][1] == each - 1:
            found[-1][1] = each
        else:
            found.append([each, each])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


@lru_cache(1 << 14)
def registers(bits: int) -> str:
    """Return a set of registers by their names, runs as ``R3-9``."""
    found = []
    for name, file in _FILES:
        own = {each - file.first for each in members(bits & file.all)}
        found += [f"{name}{each}" for each in _ranges(frozenset(own)).split()]
    return " ".join(found) or "-"


def _reasoned(made: Callable[[], object]) -> str:
    """Return a result as text, or the refusal."""
    try:
        return shown(made())
    except IkpError as error:
        return f"refused: {error}"


def code(subject: Subject) -> Iterator[str]:
    """Yield each instruction: its text, source lines, and control bits."""
    listed = subject.flow.code
    named = {at: name for name, at in listed.labels.items()}
    line: object = None
    for at, each in enumerate(listed.instructions):
        if at in named:
            yield f"{named[at]}:"
        if each.lines != line:
            line = each.lines
            yield "  # " + " < ".join(f"{one.file}:{one.number}" for one in each.lines)
        control = each.control
        yield (
            f"{at:4} {each.text} | stall {control.stall} writes {control.writes} "
            f"reads {control.reads} waits {shown(control.waits)} to {shown(each.targets)} "
            f"if {shown(each.conditions)}{' never' * each.never_runs}"
        )


def meaning(subject: Subject) -> Iterator[str]:
    """Yield what each instruction reads, writes and is."""
    for at, each in enumerate(subject.flow.code.instructions):
        effect = effects(each)
        touched = accesses(each)
        yield (
            f"{at:4} {each.text} | reads {registers(effect.reads)} writes "
            f"{registers(effect.writes)} kills {registers(effect.kills)} | {work_of(each).value} "
            f"{shown(landmark(each.opcode))} {unit_of(each)} {lane_bytes(each.opcode)} "
            f"{shown(touched)} {shown(definitions(each))}"
        )


def flow(subject: Subject) -> Iterator[str]:
    """Yield blocks, edges, loops, and where threads may be apart."""
    made, graph = subject.flow, subject.flow.graph
    for number, block in enumerate(graph.blocks):
        above = [each for each in graph.order if made.dominance.holds(each, number)]
        joined = made.until_joined(number) if number in made.dominance.entered else ()
        yield (
            f"block {number} [{block.first} {block.end}) before {shown(graph.before[number])} "
            f"after {shown(graph.after[number])} dominated by {shown(frozenset(above))} "
            f"until joined {shown(frozenset(joined))}"
        )
    yield f"order {shown(graph.order)} exits {shown(graph.exits)} leaves {shown(graph.leaves)}"
    yield f"jumps {shown(graph.jumps.leaving)} calls {shown(graph.jumps.calls)}"
    yield f"falls {shown(graph.falls)} collective {shown(collective_bodies(made.code))}"
    for loop in made.loops:
        yield f"loop {loop.header} body {shown(loop.body)}"
    count = len(made.code.instructions)
    yield f"around {shown([[one.header for one in made.loops_around(at)] for at in range(count)])}"
    yield f"before {shown([[(e.source, e.guard) for e in made.before[at]] for at in range(count)])}"
    yield f"after {shown([made.after(at) for at in range(count)])}"


def apart(subject: Subject) -> Iterator[str]:
    """Yield where threads of a warp may be apart, and which jumps part them."""
    for rows in (False, True):
        found = ProbeRegions(subject.flow, rows=rows).regions
        yield f"rows {rows} divergent {shown(frozenset(found.divergent))}"
        yield f"lacking {shown(frozenset(found.lacking))} irregular {shown(found.irregular)}"
        yield f"others {shown({at: frozenset(some) for at, some in found.others.items()})}"
        jumps = subject.flow.graph.jumps.leaving
        inner = found.alike.within(found.divergent)
        alike = [at for at in jumps if found.alike.decides(at)]
        yield f"uniform {shown(alike)} within {shown([at for at in jumps if inner.decides(at)])}"


def liveness(subject: Subject) -> Iterator[str]:
    """Yield the live registers before each instruction."""
    yield from _changes(registers(each) for each in subject.liveness.own)
    yield f"used {registers(subject.liveness.used)} calls {shown(subject.liveness.leaving_calls)}"


def hazards(subject: Subject) -> Iterator[str]:
    """Yield what is under way before each instruction."""
    found = FreeRegisters(subject.liveness).flight
    unsafe = (bits_of(np.flatnonzero(row).tolist()) for row in found.table)
    yield from _changes(
        f"unsafe {registers(bits)} late {registers(found.late(at))} lasting "
        f"{registers(found.lasting(at))} held {found.held(at):06b}"
        for at, bits in enumerate(unsafe)
    )
    given = {at: (registers(e.reads), registers(e.writes)) for at, e in found.given.items()}
    yield f"counted {shown(found.counted)} given {shown(given)}"


def _changes(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts before each instruction, where they are others than before the last one."""
    last = ""
    for at, text in enumerate(texts):
        if text != last:
            yield f"{at:4} {text}"
        last = text


@lru_cache(1 << 12)
def _spare(found: Spare) -> str:
    own = " ".join(
        f"{name} {shown(frozenset(getattr(found, name)))}"
        for name in ("registers", "pairs", "quads", "predicates", "scoreboards")
    )
    uniform = frozenset(found.uniform_registers), frozenset(found.uniform_predicates)
    return f"{own} uniform {shown(uniform[0])} {shown(uniform[1])}"


def free(subject: Subject) -> Iterator[str]:
    """Yield the registers that are free before each instruction."""
    room = FreeRegisters(subject.liveness, subject.registers - RESERVED)
    count = len(subject.flow.code.instructions)
    ends = subject.flow.graph.jumps.ends
    yield from _changes(_spare(room.at(at)) for at in range(count))
    yield from _changes(
        _spare(room.left(at) if ends(at) else room.waited(at)) for at in range(count)
    )
    yield f"entering {_spare(room.entering)}"
    yield f"middle {_spare(room.through(range(count // 3, count // 2 + 1)))}"
    yield f"unused {shown(room.unused_uniform)} {shown(room.unused_own)} highest {room.highest}"
    yield f"allowed {shown(room.allowed)} pending {shown(room.pending_barriers)}"
    for role in roles(subject.flow):
        part = room.within(role.rows)
        yield f"role {shown(role)} unused {shown(part.unused_uniform)} {shown(part.unused_own)}"


def sources(subject: Subject) -> Iterator[str]:
    """Yield which instructions wrote what each reads."""
    found = DefUse(subject.flow)
    for at, each in enumerate(subject.flow.code.instructions):
        by = {text: found.source_set(at, text) for text in each.operands}
        yield f"{at:4} from {shown(found.sources(at))} to {shown(found.users(at))} {shown(by)}"


def idiomatic(subject: Subject) -> Iterator[str]:
    """Yield calls, roles, slow paths and elected lanes."""
    made, file = subject.flow, subject.file
    calls = {at: idioms.called(file, made, at) for at in made.graph.jumps.calls}
    yield f"calls {shown(calls)} asserts {shown(idioms.asserts(file, made))}"
    yield f"reports {shown(idioms.reports(file, made))} slow {shown(idioms.slow_paths(made))}"
    code = made.code.instructions
    yield f"elected {shown([at for at in range(len(code)) if idioms.is_elected(made, at)])}"
    spare = idioms.spare_argument(subject.kernel, code, 16, subject.chip.parameters)
    yield f"spare argument {shown(spare)} emulated {shown(idioms.addressed(subject.kernel, code))}"
    yield f"roles {shown(roles(made))} registers {shown(registers_at(made, 128))}"


_LAUNCHES = (
    Shape(),
    Shape(
        (32, 4, 2), (3, 5, 1), warps=8, blocks=4, spread=2, rows=2,
        arguments=tuple((8 * at, (0x1000 * at + 7).to_bytes(8, "little")) for at in range(12)),
    ),
)  # fmt: skip


def _value(value: Value) -> str:
    bits = value.bits
    if bits is None:
        return f"? {value.depends:#x}"
    first, last = bits.ravel()[:3].tolist(), bits.ravel()[-2:].tolist()
    weights = np.arange(1, bits.size + 1, dtype=np.int64)
    with np.errstate(all="ignore"):
        total = int((bits.ravel().astype(np.int64) * weights).sum()) & 0xFFFFFFFF
    return f"{first} .. {last} sum {total:08x} depends {value.depends:#x}"


def _threads(mask: np.ndarray | None) -> str:
    return "?" if mask is None else np.packbits(mask).tobytes().hex()


def lanes(subject: Subject) -> Iterator[str]:
    """Yield the addresses, conditions and trips of threads, as far as they are known."""
    made = subject.flow
    first = subject.chip.parameters
    for shape in _LAUNCHES:
        known = LaneValues(made, LaunchValues(shape, shape.parameters(first), first))
        yield f"launch {shown(shape.block)} {shown(shape.grid)}"
        for at, each in enumerate(made.code.instructions):
            if accesses(each):
                yield (
                    f"{at:4} {each.text} | {_value(known.address(at))} | "
                    f"{_value(known.operand(at))} | {_threads(known.active(at))} "
                    f"{_threads(known.executes(at))} {known.warps(at):.6g} {known.is_guessed(at)}"
                )
        for at in made.graph.jumps.leaving:
            yield f"jump {at} depends {known.branch(at):#x}"
        for number in made.graph.order:
            yield f"block {number} comes {_threads(known.comes(number))}"
        for loop in made.loops:
            yield from _laned(subject, known, loop.header, loop.body)


def _laned(subject: Subject, known: LaneValues, header: int, body: frozenset[int]) -> Iterator[str]:
    """Yield what threads do in a loop."""
    code = subject.flow.code.instructions
    yield f"loop {header} trips {shown(known.trips(header))}"
    for at in sorted(body):
        parts = [f"moves {known.moves(at, header)}"] if accesses(code[at]) else []
        if (pair := known.compared(at, header)) is not None:
            parts.append(" ".join(map(_value, pair)))
        result = known.result(at, header)
        if parts or result != known.result(header, header):
            yield f"{at:4} {' '.join(parts)} result {result:#x}"


def regions(subject: Subject) -> Iterator[str]:
    """Yield what can be recorded, what can't, and why."""
    for ptx, rows in dict.fromkeys(((subject.ptx, True), ("", False))):
        found = ProbeRegions(subject.flow, ptx, named=bool(ptx), rows=rows)
        for place in found.all:
            ends, within = shown(place.ends), shown(place.within)
            yield f"{place.kind} {place.level} {place.name!r} from {shown(place.start)} to {ends}"
            lines = " ".join(f"{each.file}:{each.number}" for each in place.lines)
            yield f"  holds {shown(place.holds)} lines {lines} waits {place.waits} within {within}"
            if place.ends:
                inside = found.regions.inside(place.start, place.ends, place.within)
                yield f"  inside {shown(frozenset(inside))}"
        for place, why in found.refused:
            yield f"refused {place.name!r} {shown(place.start)}: {why}"
        yield f"left out {shown(found.left_out)} asked for {shown(found.asked_for)}"
        yield f"waits {shown(found.waits)}"
        for most in (1.01, 1.05, 1.5):
            for warps in (4, 32):
                budget = Budget(found, Pace.of(found, warps), most)
                kept, message = budget.keep(found.at(Level.OPS))
                yield f"budget {most} {warps}: {shown([place.name for place in kept])} {message}"


@dataclass(frozen=True)
class Lines:
    """Source lines that a user chose."""

    first: int
    last: int
    file: str

    def within(self, path: str) -> bool:
        """Return whether these are lines of a file."""
        return path == self.file


def chosen(subject: Subject) -> Iterator[str]:
    """Yield what code is found for chosen lines and functions: each line alone, and some runs."""
    every = sorted({(e.file, e.number) for i in subject.flow.code.instructions for e in i.lines})
    single = every[:: max(1, len(every) // 5)]
    wanted = [[Lines(number, number, file)] for file, number in single]
    wanted += [[Lines(number, number + 2, file)] for file, number in single[::2]]
    wanted += [[Lines(number, number, file) for file, number in single[1:3]]]
    names = ("matmul", "nested", "inner_helper", "valued", "partition", "gone")
    for lines, functions in [*((each, ()) for each in wanted), ((), names)]:
        found = ProbeRegions(subject.flow, subject.ptx, lines=lines, functions=functions)
        yield f"chosen {shown(lines)} {shown(functions)}"
        for each in found.choices:
            yield f"  {each.message} {shown(each.piece)}"
        yield f"  {shown([(place.name, place.start, place.ends) for place in found.all])}"
        yield f"  {shown([(place.name, why) for place, why in found.refused])}"


def touched(subject: Subject) -> Iterator[str]:
    """Yield what may be taken out of the kernel, and what wrong values would reach."""
    for suspect in suspects.suspects(subject.flow):
        yield f"suspect {shown(suspect)}"
    influence = Influence(subject.flow)
    for at, each in enumerate(subject.flow.code.instructions):
        if accesses(each):
            yield f"{at:4} wrong: {influence.why_unsafe(frozenset((at,)), frozenset())!r}"
    for some in ((GLOBAL,), (SHARED,), (LOCAL,), (GLOBAL, SHARED)):
        yield f"{shown(some)} wrong: {influence.why_unsafe(frozenset(), frozenset(some))!r}"
    chip, before = subject.chip, subject.registers
    for warps in (None, 1, 4, 8, 24):
        counts = register_choice.register_counts(before, warps, chip)
        fewer = register_choice.cost(warps, before, counts[-1], chip)
        yield f"registers of {warps} warps {shown(counts)} {shown(fewer)}"


def _place(symbol: str) -> int:
    """Return where a variable is said to be in memory."""
    return 0x7F12_3456_7800 + 0x100 * len(symbol)


def file(subject: Subject) -> Iterator[str]:
    """Yield the parts of the file, and its digest once code was put into it."""
    cubin, kernel = subject.file, subject.kernel
    yield f"sm {cubin.sm}{cubin.suffix} kernels {shown([*cubin.kernels])}"
    yield f"registers {kernel.registers} parameters {shown(kernel.parameters)}"
    yield f"functions {shown(kernel.functions)} relocated {shown(cubin.relocated(kernel))}"
    for each in kernel.attributes:
        yield f"attribute {each.code:#x} {shown(each.data)}"
    with suppress(UnknownTableError):
        for at, lines in sorted(source_lines(cubin.elf, kernel).items()):
            yield f"line {at:#x} {shown(lines)}"
    yield f"constants {_reasoned(lambda: module_memory.constants(subject.cubin))}"
    yield f"variables {_reasoned(lambda: module_memory.variables(subject.cubin))}"
    found = _reasoned(lambda: module_memory.shared(subject.cubin, subject.name, _place))
    yield f"shared {found[:200]} {hashlib.sha256(found.encode()).hexdigest()}"
    yield f"same again {cubin.write() == subject.cubin}"


def moved(subject: Subject) -> Iterator[str]:
    """Yield the file with code put everywhere in it, section by section."""
    count = len(subject.kernel.words)
    jumps = list(subject.flow.graph.jumps.leaving)[::2]
    plain = subject.flow.code.instructions
    edges = [OnEdge(at, (PASSED,)) for at in jumps if plain[at].op == "BRA"]
    ways = {
        "everywhere": [Insertion(at, (PASSED,)) for at in range(count + 1)],
        "skipped": [Insertion(at, (PASSED,) * 3, skipped=True) for at in range(0, count, 5)],
        "edges": [Insertion(count // 2, (PASSED,) * 2)],
    }
    for way, added in ways.items():
        made = Cubin.read(subject.cubin)

        def put(made: Cubin = made, added: list[Insertion] = added, way: str = way) -> object:
            to = insert(made, subject.name, added, edges if way == "edges" else ())
            return to.count, to.new, to.land, to.start

        yield f"{way} {_reasoned(put)}"
        for section in made.elf.sections:
            yield f"  {section.name} {section.info} {section.room} {shown(section.data)}"
        yield f"  {shown(made.write())}"


OF_CODE: dict[str, Callable[[Subject], Iterator[str]]] = {
    "code": code,
    "meaning": meaning,
    "flow": flow,
    "liveness": liveness,
    "hazards": hazards,
    "free": free,
    "sources": sources,
    "idioms": idiomatic,
    "lanes": lanes,
    "file": file,
    "moved": moved,
}
"""The views of code, by name."""
OF_POINTS: dict[str, Callable[[Subject], Iterator[str]]] = {
    "apart": apart,
    "regions": regions,
    "chosen": chosen,
    "touched": touched,
}
"""The views of what can be recorded, by name."""
OF_FILES = ("idioms", "file", "moved")
"""Those that need a file."""


def said(subject: Subject, view: Callable[[Subject], Iterator[str]]) -> list[str]:
    """Return the lines of one view; a refusal is its last line."""
    lines = list[str]()
    try:
        lines.extend(view(subject))
    except IkpError as error:
        lines.append(f"refused: {error}")
    return lines
