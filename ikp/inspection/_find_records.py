"""``find``: the records in a kernel's machine code, with their stores and their clock reads."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from ikp.core.abi import ALIGNMENT, KIND_SHIFT, Kind
from ikp.inspection._gathered import GatheredFinder
from ikp.inspection._origins import Origins, Tracer
from ikp.inspection._record import FoundRecords, Record, Span
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.values import ValueOrigin, words
from ikp.targets.ptx import PUBLISHED

_STORES = ("STG", "ST", "STS")
_KINDS = frozenset(Kind)
_ADDRESS = re.compile(r"^(?P<base>.*\[[^\]+]+(?:\+UR\d+)?)(?:\+(?P<offset>-?0x[0-9a-f]+))?\]$")
_REGISTER = re.compile(r"R\d+")
_REACH = 32
"""Instructions between the two stores of one record, at most: they are adjacent in PTX."""


def find(flow: Flow) -> FoundRecords:
    """Return the records of a kernel.

    A record is a 16-byte store of {tag, start, end, payload} whose end word comes from a clock and
    whose tag doesn't: that distinguishes it from the stores of init and finish. Tag and start
    distinguish it from any other such store. With a 64-bit clock it is a store of {start, end},
    both from a clock, and a store of {tag, payload} behind it.

    In a stream, each start and each record is published by a store of its own: ``published``.

    In finished machine code, where no four registers in a row were free, it is a store of
    {tag, start} and one of {end} behind it. From fewer registers, it is {end} first, and then
    {tag, start}, or {tag} and {start}. There, too, one store may take several records, of a thread
    each: see ``_gathered``.
    """
    tracer = Tracer(flow)
    gathered = GatheredFinder(tracer).records
    records, paired, wide = list[Record](), set[int](), _WideStores(tracer)
    every = range(len(flow.code.instructions))
    published = {*filter(partial(_publishes_start, tracer), every)}
    for at, instruction in enumerate(flow.code.instructions):
        if (apart := _apart(flow.code.instructions, at)) is not None:
            tag, start = words(instruction.operands[1], 2)
            (end,) = flow.code.instructions[apart].operands[1:2]
            records += _of_two(tracer, (at, apart), tag, start, end)
            paired.add(apart)
        elif at not in paired and (pieces := _pieces(flow.code.instructions, at)) is not None:
            records += _of_pieces(tracer, at, *pieces)
        elif at not in gathered and at not in published and _stores(instruction, "128"):
            records += wide.records(at)
    records += chain.from_iterable(gathered.values())
    unresolved = [*wide.unresolved, *(at for at, several in gathered.items() if not several)]
    records.sort(key=lambda record: record.store)
    published |= _published_counts(tracer, records)
    found = tuple(records), tuple(sorted(unresolved))
    return FoundRecords(*found, wide.clocks, tuple(sorted(published)))


def _publishes(instruction: Instruction, bits: str) -> bool:
    """Return whether a volatile store of so many bits is at the published words of a slot header.

    A record's own stores are never volatile.
    """
    if ".STRONG" not in instruction.opcode or not _stores(instruction, bits):
        return False
    return _address(instruction)[1] == PUBLISHED


def _publishes_start(tracer: Tracer, at: int) -> bool:
    """Return whether a stream says here which range is open: it stores {count, tag, start, ...}."""
    instruction = tracer.flow.code.instructions[at]
    if not _publishes(instruction, "128"):
        return False
    _, tag, start, _ = words(instruction.operands[1], 4)
    return tracer.are_clocks(at, start) and bool(_tags(tracer, at, tag))


def _published_counts(tracer: Tracer, records: list[Record]) -> set[int]:
    """Return the stores by which a stream counts records: of {count, 0}, each beside its record.

    The assembler may put one before its record.
    """
    found, stores = set[int](), sorted({max(record.stores) for record in records})
    for at, each in enumerate(tracer.flow.code.instructions):
        if not _publishes(each, "64"):
            continue
        if bisect_right(stores, at + _REACH) > bisect_right(stores, at - _REACH):
            count, nothing = words(each.operands[1], 2)
            if _is_zero(tracer, at, nothing) and not tracer.are_clocks(at, count):
                found.add(at)
    return found


def _is_zero(tracer: Tracer, at: int, place: str) -> bool:
    made = [tracer.defined[int(one)].values() for (one,) in tracer.origins(at, (place,)).found]
    return bool(made) and all(
        each.origin is ValueOrigin.CONSTANT and each.value == 0
        for defined in made
        for each in defined
    )


@dataclass
class _WideStores:
    """The 16-byte stores: records, and others, by which the clock reads of records are known."""

    tracer: Tracer
    unresolved: list[int] = field(default_factory=list)
    """The records whose clock reads are not found."""
    headers: list[tuple[int, tuple[str, str]]] = field(default_factory=list)
    """Those that may store a slot's header, with the words that do."""
    anchors: list[tuple[int, tuple[str, str]]] = field(default_factory=list)
    """Those of clock reads without a tag, with their words."""
    wide: bool = False
    """Whether records have clocks of 64 bits."""

    def records(self, at: int) -> Iterator[Record]:
        """Yield the record that a store writes, and remember the store if it writes none."""
        tracer, instructions = self.tracer, self.tracer.flow.code.instructions
        first, second, end, _ = words(instructions[at].operands[1], 4)
        if not tracer.are_clocks(at, end):
            self.headers.append((at, (first, second)))
            return
        stores: tuple[int, ...] = (at,)
        tag, start = first, second
        if tracer.are_clocks(at, first):
            rest = _rest(tracer.flow, at)
            tag, start = "", first
            if rest is not None:
                stores, tag = (at, rest), words(instructions[rest].operands[1], 2)[0]
        tags = _tags(tracer, stores[-1], tag) if tag else set()
        spans = _spans(tracer, tracer.origins(at, (end, start))) if tags else ()
        if spans:
            self.wide |= len(stores) > 1
            yield Record(stores, tags.pop() if len(tags) == 1 else None, spans)
        elif tags:
            self.unresolved.append(at)
        else:
            self.anchors.append((at, (start, end)))

    def clocks(self) -> tuple[int, ...]:
        """Return the clock reads of records: all of 64 bits but clock anchors, or all of 32."""
        tracer = self.tracer
        others = {made for at, words in self.headers for made in _of_header(tracer, at, words)}
        if self.wide:
            others |= {made for at, words in self.anchors for made in _origins(tracer, at, words)}
        return tuple(
            at
            for at, defined in enumerate(tracer.defined)
            if len(defined) == 1 + self.wide and at not in others and at in tracer.clocks
        )


def _apart(instructions: tuple[Instruction, ...], at: int) -> int | None:
    """Return the store of the end that belongs to the tag and start that ``at`` stores."""
    if not _stores(instructions[at], "64") or at + 1 == len(instructions):
        return None
    base, offset = _address(instructions[at])
    after = instructions[at + 1]
    return at + 1 if _stores_word(after) and _address(after) == (base, offset + 8) else None


def _of_two(
    tracer: Tracer, stores: tuple[int, int], tag: str, start: str, end: str
) -> Iterator[Record]:
    """Yield the record that two stores write, of {tag, start} and {end}; nothing for others."""
    at, last = stores
    if tracer.are_clocks(at, start):
        tags = _tags(tracer, at, tag)
        # Registers are the same at both stores: no instruction is between them.
        spans = _spans(tracer, tracer.origins(at, (end, start)))
        if tags and spans:
            yield Record((at, last), tags.pop() if len(tags) == 1 else None, spans)


def _pieces(
    instructions: tuple[Instruction, ...], at: int
) -> tuple[tuple[int, ...], tuple[int, str], tuple[int, str]] | None:
    """Return the stores of a record whose end ``at`` stores first, and its tag and start."""
    if not _stores_word(instructions[at]):
        return None
    base, offset = _address(instructions[at])
    near = range(at + 1, min(len(instructions), at + _REACH))
    behind = {
        _address(instructions[each]): each for each in near[::-1] if _stored(instructions[each])
    }
    tag, start = behind.get((base, offset - 8)), behind.get((base, offset - 4))
    if tag is not None and _stores(instructions[tag], "64"):
        first, second = words(instructions[tag].operands[1], 2)
        return (at, tag), (tag, first), (tag, second)
    if tag is not None and start is not None and _stores_word(instructions[start]):
        words_of = instructions[tag].operands[1], instructions[start].operands[1]
        return (at, tag, start), (tag, words_of[0]), (start, words_of[1])
    return None


def _of_pieces(
    tracer: Tracer,
    at: int,
    stores: tuple[int, ...],
    tag: tuple[int, str],
    start: tuple[int, str],
) -> Iterator[Record]:
    """Yield the record whose end is stored first; its start may come from a uniform register."""
    instructions = tracer.flow.code.instructions
    copies = (
        instructions[each].operands[-1]
        for each in range(start[0] - 1, at, -1)
        if instructions[each].operands[:1] == (start[1],)
    )
    kept = next(copies, start[1])
    tags = _tags(tracer, *tag)
    spans = _spans(tracer, tracer.origins(at, (instructions[at].operands[1], kept)))
    if tags and spans:
        yield Record(stores, tags.pop() if len(tags) == 1 else None, spans)


def _stored(instruction: Instruction) -> bool:
    return _stores(instruction, "64") or _stores_word(instruction)


def _stores_word(instruction: Instruction) -> bool:
    """Return whether an instruction stores one register."""
    parts = {*instruction.opcode.split(".")}
    known = instruction.op in _STORES and not {"64", "128", "U8", "U16", "S8", "S16"} & parts
    return known and len(instruction.operands) > 1 and instruction.operands[1] != "RZ"


def _stores(instruction: Instruction, bits: str) -> bool:
    """Return whether an instruction stores so many bits of registers."""
    known = instruction.op in _STORES and bits in instruction.opcode.split(".")
    return known and len(instruction.operands) > 1 and instruction.operands[1] != "RZ"


def _rest(flow: Flow, at: int) -> int | None:
    """Return the store of the tag and payload that belong to the times that ``at`` stores.

    It is in the same basic block: elsewhere, a register of that name is another address.
    """
    instructions, block = flow.code.instructions, flow.graph.blocks[flow.graph.block(at)]
    base, offset = _address(instructions[at])
    near = range(max(block.first, at - _REACH), min(block.end, at + _REACH + 1))
    beside = [
        other
        for other in near
        if _stores(instructions[other], "64")
        and _address(instructions[other]) == (base, offset + ALIGNMENT)
    ]
    return min(beside, key=lambda other: abs(other - at), default=None)


def _address(instruction: Instruction) -> tuple[str, int]:
    """Return the base of an instruction's address, as text, and its offset."""
    found = _ADDRESS.match(instruction.operands[0])
    return (found["base"], int(found["offset"] or "0", 16)) if found else ("", 0)


def _tags(tracer: Tracer, at: int, place: str) -> set[int | None]:
    """Return the tags that a word can hold; None is one made at run time; empty: it is no tag."""
    found: set[int | None] = set()
    for (source,) in tracer.origins(at, (place,)).found:
        if source in tracer.clocks:
            return set()
        made = tracer.defined[int(source)].values()
        found |= {d.value for d in made if d.origin is ValueOrigin.CONSTANT} or {None}
    are_tags = all(tag is None or tag >> KIND_SHIFT in _KINDS for tag in found)
    return found if are_tags else set()


def _spans(tracer: Tracer, origins: Origins) -> tuple[Span, ...]:
    """Return the pairs of clock reads behind (end, start), and the instructions between each."""
    pairs: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for places in origins.found:
        end, start = map(int, places)
        clocks = (
            d.origin is ValueOrigin.CLOCK
            for at in (end, start)
            for d in tracer.defined[at].values()
        )
        if sum(clocks) == 2:
            pairs[start, end] |= _contents(origins, places)
    return tuple(
        Span(start, end, tuple(sorted(contents)))
        for (start, end), contents in sorted(pairs.items())
    )


def _contents(origins: Origins, places: tuple[int | str, ...]) -> set[int]:
    """Return the instructions that run after the start is read and before the end is."""
    return {
        at
        for step in origins.way(places)
        if isinstance(step.after[0], int) and isinstance(step.before[1], str)
        for at in step.instructions
    }


def _of_header(tracer: Tracer, at: int, places: tuple[str, str]) -> set[int]:
    """Return the clock reads that a slot header is stored from; none for another store."""
    clocks = all(tracer.are_clocks(at, place) for place in places)
    return _origins(tracer, at, places) if clocks else set()


def _origins(tracer: Tracer, at: int, places: tuple[str, ...]) -> set[int]:
    """Return the instructions that make the words in ``places``."""
    return {int(made) for place in places for (made,) in tracer.origins(at, (place,)).found}
