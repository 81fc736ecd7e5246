"""``GatheredFinder``: finds stores by which several threads of a warp store one record each.

All of a warp's threads compute the words of all records, and each thread keeps those of one: of the
first record, until it selects those of its own, by a mask that is set in one thread alone. So from
the store back, each word is a chain of such selections, and the word behind the last one is the
first record's. ``ikp.probes.code.range_code`` generates this code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ikp.core.abi import KIND_SHIFT, Kind
from ikp.inspection._origins import Tracer
from ikp.inspection._record import Record, Span
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.values import Definition, ValueOrigin, constant, words

_KINDS = frozenset(Kind)
_WORDS = 3  # tag, start, end
_CHOICE = ("0xca", "!PT")
"""Operands of a LOP3 that selects: the second source where a mask is set, else the third."""
_NUMBER = "SR_LANEID"
_HIGHEST = 0x80
_SIGNS = {0x1111 * (8 | byte): byte for byte in range(8)}
"""PRMT selector that fills a word with the highest bit of a byte -> which byte: 0 to 3 of one
register, 4 to 7 of another."""
_LOW = 4  # bytes of a register


class _HeldWord(NamedTuple):
    """A word of a record: a register, right before instruction ``at``."""

    at: int
    place: str


@dataclass(frozen=True)
class GatheredFinder:
    """Finds gathered records in one kernel. A store that isn't proven to take some is left out.

    Args:
        tracer: the tracer of the kernel.
    """

    tracer: Tracer
    _from: dict[tuple[int, str], frozenset[int]] = field(default_factory=dict)
    """The instructions that define a word that a basic block begins with."""

    @cached_property
    def records(self) -> dict[int, tuple[Record, ...]]:
        """The stores of such records, and each one's records; none if one of them isn't proven."""
        every = enumerate(self._instructions)
        stores = [at for at, each in every if each.op == "STG" and ".128" in each.opcode]
        return {at: self._taken(at) for at in stores if self._takes(at)}

    def _takes(self, store: int) -> bool:
        """Return whether the end that is stored is one of several clock reads, selected bitwise."""
        place = self._stored(store)[-1]
        at = store
        while (made := self._last(at, place)) is not None:
            each = self._instructions[made]
            if each.op != "LOP3":
                return at != store and self._clock(made, place)
            if any(self._clock(self._last(made, one), one) for one in each.operands[1:4]):
                return True
            if place not in each.operands[1:4]:
                return False
            at = made
        return False

    def _taken(self, store: int) -> tuple[Record, ...]:
        """Return all records that a store takes, the first one first; none if one isn't proven."""
        tags, starts, ends = (self._parts(store, place) for place in self._stored(store))
        if not tags.keys() == starts.keys() == ends.keys() == {*range(len(tags))}:
            return ()
        found = []
        for number in range(len(tags)):
            tag, spans = self._tag(tags[number]), self._spans(starts[number], ends[number])
            if tag is None or not spans:
                return ()
            found.append(Record((store,), tag, spans))
        return tuple(found)

    def _stored(self, store: int) -> list[str]:
        return words(self._instructions[store].operands[1], _WORDS)

    def _parts(self, store: int, place: str) -> Mapping[int, _HeldWord]:
        """Return the word of each thread, by its number; empty if the code is not understood."""
        found: dict[int, _HeldWord] = {}
        at = store
        while (made := self._made(at, place)) is not None:
            each = self._instructions[made]
            if not _chooses(each, place):
                return found | {0: _HeldWord(at, place)}
            thread = self._thread(made, each.operands[1])
            if not thread or thread in found:  # the first is never chosen
                return {}
            found[thread] = _HeldWord(made, each.operands[2])
            at = made
        return {}

    def _thread(self, at: int, mask: str) -> int | None:
        """Return the number of the only thread in which all bits of a mask are set."""
        made = self._made(at, mask)
        each = self._instructions[made or 0]
        if made is None or each.opcode != "PRMT" or len(each.operands) != _LOW:
            return None
        _, low, signs, high = each.operands
        thread = _SIGNS.get(constant(signs) or 0)
        if thread is None or not self._own_bytes(made, low, "SHF.L.U32"):
            return None
        own = thread < _LOW if high == "RZ" else self._own_bytes(made, high, "SHF.L.U64.HI")
        return thread if own else None

    def _own_bytes(self, at: int, place: str, opcode: str) -> bool:
        """Return whether in eight bytes, thread n has only the highest bit of byte n set.

        Args:
            at: the instruction that reads the register.
            place: the register with half of the bytes.
            opcode: the opcode of the shift that defines this half.
        """
        made = self._origins(at, place)
        return bool(made) and all(self._shifts(each, opcode) for each in made)

    def _shifts(self, at: int, opcode: str) -> bool:
        """Return whether an instruction shifts a bit to a thread's own byte."""
        each = self._instructions[at]
        if each.opcode != opcode or len(each.operands) != _LOW or each.operands[3] != "RZ":
            return False
        _, bit, bits, _ = each.operands
        made = self._made(at, bits)
        return self._constant(at, bit) == _HIGHEST and made is not None and self._eightfold(made)

    def _eightfold(self, at: int) -> bool:
        """Return whether an instruction computes eight times a thread's number."""
        each = self._instructions[at]
        if each.opcode != "IMAD.SHL.U32" or each.operands[2:] != ("0x8", "RZ"):
            return False
        made = self._made(at, each.operands[1])
        read = None if made is None else self._instructions[made]
        return read is not None and read.opcode == "S2R" and read.operands[1:] == (_NUMBER,)

    def _tag(self, held: _HeldWord) -> int | None:
        tag = constant(held.place)
        tag = self._constant(*held) if tag is None else tag
        return tag if tag is not None and tag >> KIND_SHIFT in _KINDS else None

    def _spans(self, start: _HeldWord, end: _HeldWord) -> tuple[Span, ...]:
        """Return the pairs of clock reads behind a record, and the instructions between each."""
        last = self._made(*end)
        if last is None or not self._clock(last, end.place):
            return ()
        begun = self._before(start, last)
        if begun is None:
            return ()
        origins = self.tracer.origins(begun.at, (begun.place,))
        rest = range(begun.at, last)  # a wait's start is taken before its end is read
        found = []
        for (first,) in origins.found:
            way = (step for step in origins.way((first,)) if isinstance(step.before[0], str))
            contents = {each for step in way for each in step.instructions}
            if first not in self.tracer.clocks:
                return ()
            found.append(Span(int(first), last, tuple(sorted({*contents, *rest}))))
        return tuple(sorted(found, key=lambda span: span.start))

    def _before(self, held: _HeldWord, end: int) -> _HeldWord | None:
        """Return the register of a word right before the end was read; None if not yet there."""
        place = held.place
        for at in range(held.at - 1, end - 1, -1):
            made = self.tracer.defined[at].get(place)
            if made is not None:
                if self._instructions[at].guard or not _copies(made):
                    return None
                (place,) = made.sources
        return _HeldWord(min(held.at, end), place)

    def _origins(self, at: int, place: str) -> frozenset[int]:
        """Return all definitions of a word, in its block or before; none if it may be undefined."""
        if (made := self._last(at, place)) is not None:
            return frozenset() if self._instructions[made].guard else frozenset([made])
        key = self._first(at), place
        if key not in self._from:
            origins = self.tracer.origins(key[0], (place,))
            found = {int(made) for (made,) in origins.found}
            unmade = any(not state.at and not state.done for state in origins.states)
            unmade |= any(self._instructions[made].guard for made in found)
            self._from[key] = frozenset(() if unmade else found)
        return self._from[key]

    def _constant(self, at: int, place: str) -> int | None:
        """Return the constant that a word surely is, if its block defines it."""
        made = self._made(at, place)
        defined = None if made is None else self.tracer.defined[made][place]
        return defined.value if defined and defined.origin is ValueOrigin.CONSTANT else None

    def _clock(self, made: int | None, place: str) -> bool:
        """Return whether an instruction reads 32 bits of the clock into a register."""
        if made is None or len(self.tracer.defined[made]) > 1:
            return False
        defined = self.tracer.defined[made].get(place)
        return defined is not None and defined.origin is ValueOrigin.CLOCK

    def _made(self, at: int, place: str) -> int | None:
        """Return the unguarded instruction that last defines a word, in the same block."""
        made = self._last(at, place)
        return None if made is None or self._instructions[made].guard else made

    def _last(self, at: int, place: str) -> int | None:
        """Return the instruction, guarded or not, that last defines a word in the same block."""
        made = self.tracer.last(at, place)
        return None if made is None or made < self._first(at) else made

    def _first(self, at: int) -> int:
        graph = self.tracer.flow.graph
        return graph.blocks[graph.block(at)].first

    @property
    def _instructions(self) -> tuple[Instruction, ...]:
        return self.tracer.flow.code.instructions


def _chooses(instruction: Instruction, place: str) -> bool:
    """Return whether an instruction replaces bits of a word where those of a mask are set."""
    opcode, operands = instruction.opcode, instruction.operands
    known = opcode == "LOP3.LUT" and len(operands) == 6 and operands[4:] == _CHOICE
    return known and operands[3] == place and operands[1] != place


def _copies(made: Definition) -> bool:
    return made.origin is ValueOrigin.COPY and len(made.sources) == 1
