"""A kernel's patched code: matched with the plain one's, and what its inserted instructions do.

A place is the number of an instruction of the patched code. A state says of each register what
inserted code has put there, and which registers are in flight, for which scoreboard. Sets of
registers are bits of an integer, as in ``ikp.sass.disassembly.resources``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from ikp.sass.cubins import instruction as enc
from ikp.sass.cubins.instruction import DistanceField
from ikp.sass.disassembly.effects import Effects, effects
from ikp.sass.disassembly.listing import Code as Text
from ikp.sass.disassembly.resources import BITS, EVERYTHING, FILES, UP, UR, P, R, members
from ikp.verifier.declared import Declared

_EXIT, _BSYNC, _MEETS, _LOADS = 0x94D, 0x941, (0x355, 0x356, 0x955, 0x956), (0xAB9, 0x7AC)
_LEAVES, _ENDS, _TABLED = (0x343, 0x943), (0x95B, 0x95C), (enc.BRX, enc.BRX_UNIFORM)
_RETURNED, _BEFORE = DistanceField(((0, 32, 32),), 1), 128  # a MOV of an address, before its call
_BRANCHES = {enc.BRA, enc.BRA_UNIFORM, enc.CALL_REL, enc.RET, *_TABLED, *enc.WARPSYNC}
_QUEUES = ("STG", "STS", "LDS", "LDGSTS", "SHFL", "MUFU", "STSM", "LDSM")
_SLOW = re.compile(
    r"(ST|RED|ATOM|LD|SYNCS|CCTL|UTMA|UBLK|BAR|SU|TEX|TLD).*|SHFL|MUFU|[FI]2[FI]|FRND|POPC|FLO"
    "|BREV|MATCH|FCHK|MOVM|QSPC|BMOV|NANOSLEEP|PIXLD|DMMA"
)
"""Operations that read their operands late: each queue in its order, all others in none."""
_PRODUCTS, _STARTED, _MISSING = 24, 34, 35
"""In flight, behind (results, operands) of original and inserted code for each scoreboard: those of
products; operands with no scoreboard; whether original code began; registers that are not there."""
_STAYS = UR.all | UP.all | ((1 << BITS) - 1) << BITS  # what threads read where others leave
_DOES = (1 << 105) - 1  # an instruction's bits without its scheduling
FORMS: Final = {
    0x805: "clock|R16*|", 0x919: "number|R16|", 0x9C3: "number|UR16|",
    0x82F: "other|P81|UR16 P87", 0xAB9: "load|UR16*|", 0x7AC: "load|UR16*|UR24",
    0xB82: "load|R16*|R24", 0xA02: "load|R16|", 0x202: "copy|R16|R32", 0x802: "0|R16|",
    0xC02: "copy|R16|UR32", 0xC82: "copy|UR16|UR32", 0x2CA: "copy|UR16|R24", 0x3C2: "copy|UR16|R24",
    0xE25: "pair|R16+|R24 R64 UR32+", 0x224: "2|R16|R24 R32 R64",
    0x424: "mixed|R16|R24 R64", 0x824: "1|R16|R24 R64", 0xE24: "2|R16|R24 R64 UR32",
    0x2A4: "2|UR16|UR24 UR32 UR64", 0x8A4: "1|UR16|UR24 UR64", 0x836: "0|R16|R24",
    0x835: "0|R16|R24", 0x810: "0|R16|R24 R64", 0xC36: "0|R16|R24 UR32",
    0x890: "0|UR16|UR24 UR64", 0x211: "1|R16|R24 R32 R64",
    0xC11: "1|R16|R24 UR32 R64", 0x291: "1|UR16|UR24 UR32 UR64",
    0x219: "mixed|R16|R24 R32 R64", 0x819: "mixed|R16|R24 R64", 0x216: "mixed|R16|R24 R32 R64",
    0x816: "mixed|R16|R24 R64", 0x212: "mixed|R16 P81|R24 R32 R64",
    0x812: "mixed|R16 P81|R24 R64", 0xC12: "mixed|R16 P81|R24 UR32 R64",
    0x892: "mixed|UR16 UP81|UR24 UR64", 0x807: "mixed|R16|R24 P87",
    0x287: "mixed|UR16|UR24 UR32 UP87", 0x806: "mixed|R16 P81|P87",
    0x20C: "test|P81 P84|R24 R32 P87", 0x80C: "test|P81 P84|R24 P87",
    0xC0C: "test|P81 P84|R24 UR32 P87", 0x28C: "test|UP81 UP84|UR24 UR32 UP87",
    0x803: "save|R16|R24", 0x986: "store||R24 R32* UR64+", 0x98E: "store||R24+ R32* UR64+",
    0x9A8: "store|R16|R24+ R32* UR64+", 0x947: "branch||P87", 0x918: "none||",
}  # fmt: skip
"""Opcode -> the kind of its result | the fields that it writes | those that it reads. A field is a
file and a first bit; ``+``: a pair, ``*``: as many as its size says. A digit: so many factors are
multiplied, and all others added."""
_LATE = (0x919, 0x9C3, 0x7AC, 0xB82, 0x3C2, 0x9A8)  # of variable latency
ZERO, NUMBER, SIZE, LOW, HIGH, ROOM, OTHER, LOST, MEMORY, MORE = range(10)
"""What inserted code has put into a register: a number; the cell's size or address; a predicate
that there is room; anything; LOST, if original code has written it since; global memory's
descriptor. A number below 0: the predicate of that number was saved."""
_NUMBERS, _CELL = (ZERO, NUMBER, SIZE), (LOW, HIGH, SIZE)
_MEMORY_AT: Final = {0x160: 0x118, 0x210: 0x208, 0x380: 0x358}  # by where parameters are
Values = dict[int, int]
State = tuple[Values, list[int]]


class Inserted(NamedTuple):
    """One inserted instruction, decoded; registers as (first bit, how many), -1 for none."""

    opcode: int
    word: int
    kind: str
    targets: tuple[tuple[int, int], ...]
    sources: tuple[tuple[int, int], ...]
    guard: int
    reads: int
    writes: int


@cache
def decode(word: int, sm: int) -> Inserted:
    """Return a decoded instruction; ValueError: a patch may not insert it."""
    opcode, guard = word & 0xFFF, word >> 12 & 7
    if opcode not in FORMS:
        raise ValueError(f"opcode {opcode:#x} is none that is inserted")
    kind, *texts = FORMS[opcode].split("|")
    targets, sources = (tuple([_field(e, word, sm) for e in each.split()]) for each in texts)
    writes, reads = (
        sum({1 << first + n for first, count in some if first >= 0 for n in range(count)})
        for some in (targets, sources)
    )
    reads |= 1 << P.first + guard if guard != 7 else 0
    reads |= (word >> 32 & 0x7F) << P.first if kind == "save" else 0
    own = P.first + guard if guard != 7 else -1
    return Inserted(opcode, word, kind, targets, sources, own, reads, writes)


def _field(text: str, word: int, sm: int) -> tuple[int, int]:
    file = (name := text.rstrip("+*")).rstrip("0123456789")
    at, count, opcode, few = int(name[len(file) :]), 1, word & 0xFFF, file == "UR" and sm < 100
    number = word >> at & (7 if "P" in file else 0xFF)
    none = number == (7 if "P" in file else 0x3F if few else 0xFF)
    number &= 0x3F if few else 0xFF
    if text[-1] == "+" or (opcode == 0x986 and at == 24 and word >> 90 & 1):
        count = 2  # of 0x986, an offset of one register without a descriptor
    elif text[-1] == "*":
        count = 1 + (word >> 80 & 1) if opcode == 0x805 else {5: 2, 6: 4}.get(word >> 73 & 7, 1)
    return (-1 if none else FILES[file].first + number), count


def conditions(word: int) -> set[int]:
    """Return the predicates of a branch or EXIT, each plus 8 where it is negated."""
    return {each for each in (word >> 12 & 15, word >> 87 & 15) if each != 7}


def names(some: int) -> str:
    """Return registers in words."""
    files = [(file, each) for file in FILES.values() for each in members(some & file.all)]
    return ", ".join(f"{file.prefix}{each - file.first}" for file, each in files)


def _led(word: int, at: int, field: DistanceField) -> int:
    value = bits = 0
    for half, first, count in field.parts:
        value |= (word >> 64 * half + first & (1 << count) - 1) << bits
        bits += count
    if field is _RETURNED:
        return value
    return (at + 1) * 16 + (value - (value >> bits - 1 << bits)) * field.unit


def _bare(word: int, field: DistanceField) -> int:
    for half, first, count in field.parts:
        word &= ~((1 << count) - 1 << 64 * half + first)
    return word


class Matched:
    """A patched kernel's code, and the original instruction at each place; -1: inserted.

    Args:
        text: the plain code, as the disassembler prints it.
        old: its instructions, as numbers of 128 bits.
        new: those of the patched code.
        sm: the chip's number.
        linked: instructions that the loader writes into.
        functions: the first instructions of functions.
        declared: the differences that the patch declares.
    """

    def __init__(
        self, text: Text, old: list[int], new: list[int], sm: int,
        linked: set[int], functions: set[int], declared: Declared,
    ) -> None:  # fmt: skip
        self.text, self.old, self.new, self.sm = text.instructions, old, new, sm
        self.labels, self.linked, self.functions = text.labels, linked, functions
        self.calls = [n for n, word in enumerate(old) if word & 0xFFF == enc.CALL_REL]
        self.fields = [self._of(word) for word in old]
        ours = {n for a, b in declared.inserted for n in range(a // 16, -(-b // 16))}
        self.parts = [(0, self._places([n for n in range(len(new)) if n not in ours], False))]
        if declared.beside is not None:  # the plain code again, for blocks that do not record
            first, end = (each // 16 for each in declared.beside)
            self.parts.append((first, self._places(range(first, min(end, len(new))), True)))
        self.origin, self.starts = [-1] * (len(new) + 1), [0] * len(new)
        for start, places in self.parts:
            for number, place in enumerate(places):
                self.origin[place], self.starts[place] = number, start
        self.behind = [*range(len(new) + 1)]  # where the original instruction at or behind it is
        for at in reversed(range(len(new))):
            self.behind[at] = at if self.origin[at] >= 0 else self.behind[at + 1]
        self._reached: dict[int, set[tuple[int, int]]] = {}

    def _of(self, word: int) -> DistanceField | None:
        opcode = word & 0xFFF
        if opcode == enc.MOVE:
            returns = (word >> 32 & 0xFFFFFFFF) // 16 - 1 in self.calls
            return _RETURNED if returns and not word >> 32 & 15 else None
        if opcode not in _BRANCHES or (opcode in enc.WARPSYNC and not word >> 86 & 1):
            return {enc.BSSY: enc.HALF, enc.LEPC: enc.AFTER_REGISTER}.get(opcode)
        return None if opcode == enc.RET and word >> 85 & 1 else enc.branches(self.sm)

    def _places(self, candidates: Sequence[int], skips: bool) -> list[int]:
        """Return the places of the original instructions, in their order, as far as they match."""
        found: list[int] = []
        for at in candidates:
            if len(found) == len(self.old):
                break
            old, new, field = self.old[len(found)], self.new[at], self.fields[len(found)]
            if old == new or (field is not None and _bare(old, field) == _bare(new, field)):
                found.append(at)
            elif not skips:
                break
        return found

    def said(self, number: int) -> str:
        """Return an original instruction in words."""
        return f"instruction {number}, {self.text[number].text!r},"

    def reached(self, place: int) -> set[tuple[int, int]]:
        """Return the original instructions reached first from a place, with their parts' starts."""
        if (known := self._reached.get(place)) is not None:
            return known
        found, seen, work = set[tuple[int, int]](), set[int](), [place]
        while work:
            at = work.pop()
            if not 0 <= at < len(self.new):
                found.add((-1, -1))
            elif self.origin[at] >= 0:
                found.add((self.starts[at], self.origin[at]))
            elif at not in seen:
                seen.add(at)
                work += self.after_inserted(at)
        return self._reached.setdefault(place, found)

    def after_inserted(self, at: int) -> list[int]:
        """Return the successors of an inserted instruction."""
        word = self.new[at]
        if word & 0xFFF != enc.BRA:
            return [at + 1]
        to = _led(word, at, enc.branches(self.sm))
        return [to // 16 if to % 16 == 0 else -1, *([at + 1] if conditions(word) else [])]

    def check(self) -> Iterator[str]:
        """Yield the instructions that are missing, changed, or lead to other instructions."""
        words = [low | high << 64 for low, high in (each.word for each in self.text)]
        if words != self.old or any(each.address != 16 * n for n, each in enumerate(self.text)):
            yield "the disassembly is not that of the plain kernel's code"
            return
        missing = [len(places) for _, places in self.parts if len(places) < len(self.old)]
        yield from (f"{self.said(number)} is not there as it was" for number in missing)
        if not missing and self.reached(0) != {(start, 0) for start, _ in self.parts}:
            yield "its entry does not lead to its first instruction"
        for number in () if missing else range(len(self.old)):
            named = [self.labels[e] for e in self.text[number].targets if e in self.labels]
            for start, places in self.parts:
                why = self._wrong(number, start, places, named)
                yield from (f"{self.said(number)} {each}" for each in why)

    def _wrong(self, number: int, start: int, places: list[int], named: list[int]) -> Iterator[str]:
        word, field, at = self.old[number], self.fields[number], places[number]
        opcode, behind = word & 0xFFF, (start, number + 1)
        follows = number + 1 == len(places) or places[number + 1] == at + 1
        if not follows and self.reached(at + 1) != {behind}:
            yield "is not followed by the next one"
        if opcode == enc.CALL_REL and not self._returns(number, start, places):
            yield "has no address to return to"
        if number in self.linked or field is None:
            if named and number not in self.linked:
                yield "names a place in a way that is not known"
            return
        yield from self._led_wrong(number, field, start, places, named)

    def _led_wrong(
        self, number: int, field: DistanceField, start: int, places: list[int], named: list[int]
    ) -> Iterator[str]:
        word, at = self.old[number], places[number]
        old, new, opcode = _led(word, number, field), _led(self.new[at], at, field), word & 0xFFF
        if opcode in (enc.RET, *_TABLED):
            if old or new != 16 * start:
                yield "does not count from the code's start"
        elif named and old // 16 not in named:
            yield "does not hold the place where its text reads it"
        elif field is _RETURNED and word == self.new[at]:
            return  # another number, by chance; see the call
        elif self._elsewhere(old, new + (16 * start if field is _RETURNED else 0), start):
            yield "leads elsewhere"
        elif opcode in enc.WARPSYNC and places[old // 16 - 1] - at != old // 16 - 1 - number:
            yield "has inserted code in what threads run together"

    def _elsewhere(self, old: int, new: int, start: int) -> bool:
        return bool(old % 16 or new % 16) or self.reached(new // 16) != {(start, old // 16)}

    def _returns(self, call: int, start: int, places: list[int]) -> bool:
        """Whether a MOV before a call, or in its function, has the address to return to."""
        target, value = _led(self.old[call], call, enc.branches(self.sm)) // 16, (call + 1) * 16
        if target not in self.functions:
            return True  # a jump
        return any(
            self.old[at] >> 32 & 0xFFFFFFFF == value
            and not self._elsewhere(value, _led(self.new[places[at]], 0, field) + 16 * start, start)
            for at in (*range(max(call - _BEFORE, 0), call), *range(target, len(self.old)))
            if (field := self.fields[at]) is _RETURNED and field is not None
        )


class Flow:
    """The patched code as a graph. A node is a place; or, one code's length farther, the same place
    for threads that surely leave at the EXIT behind it, which may run code that others skip.

    Args:
        code: the patched code, matched with the plain one's.
        tables: of each original indirect branch, the places that it may lead to.
        asserts: original calls that never return.
        declared: the differences that the patch declares.
        base: where parameters begin in the constants.
    """

    def __init__(
        self, code: Matched, tables: dict[int, list[int]], asserts: set[int], declared: Declared,
        base: int,
    ) -> None:  # fmt: skip
        self.code, self.declared, self.base, self.count = code, declared, base, len(code.new)
        self.ours = {
            at: decode(each, code.sm) for at, each in enumerate(code.new) if code.origin[at] < 0
        }
        self.effects = self._effects(asserts)
        self.ways = {
            at: to for at in self.ours if (to := code.after_inserted(at)) != [at + 1]
        }  # fmt: skip
        for start, places in code.parts:
            self._ways(start, places, tables, asserts)
        exits = [at for at, n in enumerate(code.origin) if n >= 0 and code.new[at] & 0xFFF == _EXIT]
        self.leaving = {at for leave in exits for at in self._skips(leave)}
        loads = [at for at, own in self.ours.items() if own.opcode == _LOADS[0]]
        self.same = {at for at in loads if self._makes_the_same(at)}
        self._divide()

    def _effects(self, asserts: set[int]) -> list[Effects]:
        """Return the effects of original instructions on registers that inserted ones name."""
        found, named, written = list(map(effects, self.code.text)), 0, EVERYTHING & ~R.all
        for own in self.ours.values():
            named |= own.reads | own.writes
        for each in found:
            written |= each.writes if each.writes != EVERYTHING else 0
        for n, word in enumerate(self.code.old):
            if word & 0xFFF in _LEAVES:  # it may read arguments
                reads = found[n].reads | (1 << 32) - 1 & written
                found[n] = Effects(reads, 0 if n in asserts else EVERYTHING, 0)
        return [Effects(*(part & named for part in each)) for each in found]

    def _ways(
        self, start: int, places: list[int], tables: dict[int, list[int]], asserts: set[int]
    ) -> None:
        """Find the successors of a part's original instructions, where not the next one alone."""
        code, met = self.code, dict[int, list[tuple[int, int]]]()
        # Where BMOV copies barriers to registers and back, each may be that of any BSSY.
        which = 0 if any(word & 0xFFF in _MEETS for word in code.old) else 15
        for number, at in enumerate(places):
            if (word := code.new[at]) & 0xFFF == enc.BSSY:
                both = _led(code.old[number], number, enc.HALF), _led(word, at, enc.HALF)
                met.setdefault(word >> 16 & which, []).append((both[0] // 16, both[1] // 16))
        returns = [places[call] + 1 for call in code.calls]
        for number, at in enumerate(places):
            word, each = code.new[at], code.text[number]
            opcode, skips = word & 0xFFF, [at + 1] if each.guard else []
            if opcode in (enc.BRA, enc.BRA_UNIFORM, enc.CALL_REL):
                sure = opcode == enc.CALL_REL or (each.opcode == "BRA" and len(each.operands) == 1)
                to = _led(word, at, enc.branches(code.sm)) // 16
                self.ways[at] = [to, *(skips if sure else [at + 1])]
            elif opcode == _EXIT:
                self.ways[at] = [at + 1] if conditions(word) else []
            elif opcode == enc.RET or opcode in _ENDS or number in asserts:
                self.ways[at] = [*(returns if opcode == enc.RET else []), *skips]
            elif opcode in _TABLED:
                self.ways[at] = tables.get(number, []) if not start else []
            elif opcode == _BSYNC:
                some = met.get(word >> 16 & which, [(number + 1, 0)])
                if all(old != number + 1 for old, _ in some):
                    self.ways[at] = [*(new for _, new in some), *([] if which else [at + 1])]

    def _skips(self, leave: int) -> Iterator[int]:
        """Yield the branches in front of an EXIT that none takes who surely leaves there."""
        first, code, known = leave, self.code.new, set[int]()
        while first - 1 in self.ours:
            first -= 1
        asked = conditions(code[leave])
        own = sum({1 << P.first + (each & 7) for each in asked})
        if any(self.ours[at].writes & own for at in range(first, leave)):
            return
        for at in range(first, leave):
            if code[at] & 0xFFF == enc.BRA and (code[at] >> 12 & 15) ^ 8 in asked:
                known.add((code[at] >> 12 & 15) ^ 8)
                if known == asked:
                    yield at

    def _makes_the_same(self, at: int) -> bool:
        """Whether original code sets an instruction's target only to the same constant."""
        ours, same = self.ours[at], self.code.new[at] & _DOES
        others = [n for n, each in enumerate(self.effects) if each.writes & ours.writes]
        return bool(others) and all(self.code.old[n] & _DOES == same for n in others)

    def _after(self, node: int) -> list[int]:
        leaves, at = divmod(node, self.count)
        tos, behind = self.ways.get(at, [at + 1]), self.code.behind
        tos = [to for to in tos if 0 <= to < self.count]
        if leaves and at not in self.ours:
            return []
        if at in self.leaving:
            return [at + 1 + self.count, *(to for to in tos if not leaves and to != at + 1)]
        return [to + self.count * (leaves and behind[to] == behind[at]) for to in tos]

    def _divide(self) -> None:
        """Find the basic blocks, by their first nodes, and what threads that stay go on with."""
        tos, work = dict[int, list[int]](), [0]
        while work:
            if (node := work.pop()) not in tos:
                tos[node] = self._after(node)
                work += tos[node]
        exits = [node for node in tos if node >= self.count and not tos[node]]
        stay = {node: to for node in exits if (to := node - self.count + 1) in tos}
        heads = {0, *stay.values()}
        heads.update(to for node, some in tos.items() if some != [node + 1] for to in some)
        self.blocks: dict[int, list[int]] = {}
        for head in heads:
            block = self.blocks[head] = [head]
            while tos[block[-1]] == [block[-1] + 1] and block[-1] + 1 not in heads:
                block.append(block[-1] + 1)
        self.to = {head: tos[block[-1]] for head, block in self.blocks.items()}
        self.stay = {h: stay[b[-1]] for h, b in self.blocks.items() if b[-1] in stay}

    def said(self, at: int) -> str:
        """Return an inserted instruction's place, in words."""
        behind = self.code.origin[self.code.behind[at]]
        before = "the end" if behind < 0 else self.code.said(behind).rstrip(",")
        return f"inserted instruction {at} ({self.code.new[at]:#034x}, before {before})"

    def check(self) -> Iterator[str]:
        """Yield inserted instructions that may do something to the kernel or to its memory."""
        restored, addresses, early = set[int](), set[int](), set[int]()
        for head, state in self._entering().items():
            values, flight = dict(state[0]), list(state[1])
            for node in self.blocks[head]:
                own = self.ours.get(at := node % self.count)
                if own is None:
                    yield from self._disturbed(node, flight)
                    self._step(at, values, flight)
                    continue
                yield from (f"{self.said(at)} {each}" for each in self._busy(own, at, flight))
                yield from (f"{self.said(at)} {each}" for each in self._unsafe(own, at, values))
                restored.update([node] if _restores(own, values) else [])
                early.update([] if flight[_STARTED] else [node])
                self._step(at, values, flight)
                if any(values.get(bit) in (LOW, HIGH) for bit in members(own.writes)):
                    addresses.add(at)  # where nothing is recorded, no store reads some of these
        yield from self._needed(restored, addresses, early)

    def _entering(self) -> dict[int, State]:
        """Return the state in which each block is entered, on any path."""
        begin = [0] * (_MISSING + 1)
        begin[_MISSING] = R.all >> self.declared.registers - 2 << self.declared.registers - 2
        found: dict[int, State] = {0: ({}, begin)}
        steps = {h: [n for n in b if self._counts(n % self.count)] for h, b in self.blocks.items()}
        work = [0]
        while work:
            head = work.pop()
            state = dict(found[head][0]), list(found[head][1])
            for node in steps[head]:
                self._step(node % self.count, *state)
            for to in self.to[head]:
                both = _merged(found[to], state) if to in found else state
                if to not in found or both != found[to]:
                    found[to] = both
                    work.append(to)
        return found

    def _counts(self, at: int) -> bool:
        """Whether an instruction changes states."""
        word, number = self.code.new[at], self.code.origin[at]
        if number <= 0 or self.effects[number].writes or word >> 116 & 63:
            return True
        text, boards = self.code.text[number], (word >> 110 & 63) != 63
        special = "DEPBAR" in text.op or "GMMA" in text.op or text.op.startswith(("WARPG", "USETM"))
        reads = self.effects[number].reads and (boards or _SLOW.fullmatch(text.op))
        return special or bool(reads) or (boards and text.op in _QUEUES)

    def _step(self, at: int, values: Values, flight: list[int]) -> None:
        word, own, number = self.code.new[at], self.ours.get(at), self.code.origin[at]
        for board in range(6) if word >> 116 & 63 else ():
            if word >> 116 + board & 1:
                flight[4 * board : 4 * board + 4] = (0, 0, 0, 0)
        write, read, guard = word >> 110 & 7, word >> 113 & 7, word >> 12 & 7
        each = own or self.effects[number]
        reads, mine, board = each.reads, 2 if own else 0, read if read < 6 else write
        if guard != 7 and (own is None or read < 6):
            reads &= ~(1 << P.first + guard)
        if write < 6:
            flight[4 * write + mine] |= each.writes
        if own is not None:
            if board < 6:
                flight[4 * board + 3] |= reads
            self._set(own, values)
            return
        flight[_STARTED] = 1
        op = self.code.text[number].op
        reads &= R.all | UR.all if op == "LDGSTS" else -1
        queue = _PRODUCTS + 1 + (_QUEUES.index(op) if op in _QUEUES else len(_QUEUES))
        if board < 6:
            flight[4 * board + 1] |= reads
            if op in _QUEUES and guard == 7:  # what the queue read before has been read by then
                flight[4 * board + 1] |= flight[queue]
                flight[queue] = 0
        elif _SLOW.fullmatch(op):
            flight[queue] |= reads
        self._special(at, number, flight)
        self._overwritten(number, word, values)

    def _special(self, at: int, number: int, flight: list[int]) -> None:
        """Change what is in flight by a wait that counts, by a product, by a hand-over."""
        text, each = self.code.text[number], self.effects[number]
        if text.op == "USETMAXREG":
            limit = min(int(text.operands[-1], 0), 255) - 2
            flight[_MISSING] = R.all >> limit << limit
        elif "DEPBAR" in text.opcode:
            listed = re.search(r"\{([\d,]+)\}", text.rest)
            boards = listed[1].split(",") if listed else re.findall(r"SB(\d)", text.rest)
            if listed or "," not in text.rest or text.rest.strip().endswith(" 0x0"):
                flight[_PRODUCTS] *= text.op != "WARPGROUP"
                for board in map(int, boards):
                    flight[4 * board : 4 * board + 4] = (0, 0, 0, 0)
        elif "GMMA" in text.op:
            flight[_PRODUCTS] |= each.reads | each.writes
        elif text.opcode.startswith("WARPGROUP.ARRIVE"):
            flight[_PRODUCTS] |= self._given(at)

    def _given(self, arrive: int) -> int:
        """Return the registers of the products behind an arrival, up to the next of these."""
        found, seen, work = 0, set[int](), self._after(arrive)
        while work:
            if (at := work.pop()) in seen:
                continue
            seen.add(at)
            number = self.code.origin[at % self.count]
            text = self.code.text[number] if number >= 0 else None
            if text is not None and "GMMA" in text.op:
                found |= self.effects[number].reads | self.effects[number].writes
            work += self._after(at) if text is None or text.op != "WARPGROUP" else []
        return found

    def _overwritten(self, number: int, word: int, values: Values) -> None:
        """Change values by an original instruction."""
        writes = self.effects[number].writes
        for bit in members(writes):
            values[bit] = LOST
        if writes & P.all:
            saved = [bit for bit, value in values.items() if value < 0 and writes >> -value & 1]
            values |= dict.fromkeys(saved, OTHER)
        if writes and word & 0xFFF in _LOADS and word >> 12 & 15 == 7:
            own = decode(word, self.code.sm)
            if (made := self._constants(own)) == [MEMORY, MORE] and own.targets[0][0] >= 0:
                values |= {own.targets[0][0] + n: each for n, each in enumerate(made)}

    def _set(self, own: Inserted, values: Values) -> None:
        """Change values by an inserted instruction."""
        if _restores(own, values):
            values |= {own.sources[0][0]: OTHER, own.targets[0][0]: LOST}
            return
        made = self._made(own, values) if own.targets else []
        for (first, count), some in zip(own.targets, (made, []), strict=False):
            for n in range(count if first >= 0 else 0):
                value = some[n] if n < len(some) and some[n] != LOST else OTHER
                same = own.guard < 0 or values.get(first + n) == value
                values[first + n] = value if same else OTHER

    def _made(self, own: Inserted, values: Values) -> list[int]:
        """Return what an inserted instruction's first target holds."""
        read = [_of(values, first) for first, _ in own.sources]
        mask, kind = own.word >> 32 & 0xFFFFFFFF, own.kind
        if kind == "load":
            return self._constants(own)
        if kind == "pair" and read[:2] == [ZERO, ZERO]:
            return [_of(values, own.sources[-1][0] + n) for n in range(2)]
        if kind == "save" and mask.bit_count() == 1 and mask < 1 << 7:
            return [-(P.first + mask.bit_length() - 1)]
        if kind == "test":
            return [self._tested(own, read)]
        found = OTHER
        if kind == "mixed":
            words = [e for e, (bit, _) in zip(read, own.sources, strict=True) if not _is_one(bit)]
            found = _sum([], words) if all(each in _NUMBERS for each in words) else OTHER
        elif kind == "copy" or kind.isdigit():
            factors = int(kind) if kind.isdigit() else 0
            found = _sum(read[:factors], read[factors:], whole=kind == "copy")
        elif kind == "store" or (kind == "number" and not 0x50 <= own.word >> 72 & 0xFF <= 0x53):
            found = NUMBER  # 0x50 to 0x53 are clocks
        return [found]

    @staticmethod
    def _tested(own: Inserted, read: list[int]) -> int:
        """Return whether a predicate says that there is room: a number is below a size."""
        below = own.word >> 76 & 7 == 1 and own.opcode in (0x20C, 0xC0C) and read[-2] == SIZE
        sure = own.word >> 64 & 0xE00 == 0 and not own.word >> 90 & 1  # unsigned, both hold
        return ROOM if sure and (below or read[-1] == ROOM) else OTHER

    def _constants(self, own: Inserted) -> list[int]:
        """Return what is in the constants that an instruction loads."""
        bank, at = own.word >> 54 & 31, own.word >> (37 if own.opcode == 0x7AC else 38) & 0xFFFF
        cell, memory = self.declared.cell, _MEMORY_AT.get(self.base)
        found = []
        for here in range(at, at + 4 * own.targets[0][1], 4):
            if bank == self.declared.bank and 0 <= here - cell < self.declared.nbytes:
                found.append(_CELL[(here - cell) // 4] if here - cell < 12 else NUMBER)
            elif bank or here >= self.base or memory is None:
                found.append(OTHER)
            else:
                found.append({memory: MEMORY, memory + 4: MORE}.get(here & ~3, NUMBER))
        return found

    def _disturbed(self, node: int, flight: list[int]) -> Iterator[str]:
        """Yield what inserted code has in flight where original code uses it, or leaves."""
        waits, number = self.code.new[node % self.count] >> 116, self.code.origin[node % self.count]
        each, results, operands = self.effects[number], 0, 0
        for board in range(6):
            if not waits >> board & 1:
                results, operands = (
                    results | flight[4 * board + 2],
                    operands | flight[4 * board + 3],
                )
        if node >= self.count and any(flight[n] for n in range(24) if n & 2):
            yield f"{self.code.said(number)} is left by threads whose store is in flight"
        if lost := (each.reads | each.writes) & results | each.writes & operands:
            yield f"{self.code.said(number)} uses {names(lost)}, in flight for inserted code"

    def _busy(self, own: Inserted, at: int, flight: list[int]) -> Iterator[str]:
        """Yield why an inserted instruction can't be issued yet."""
        waits, results, operands = own.word >> 116, 0, 0
        for n in range(24):
            if not waits >> n // 4 & 1:
                results, operands = results | flight[n] * (not n & 1), operands | flight[n]
        for each in flight[_PRODUCTS:_STARTED] if at not in self.same else ():
            operands |= each
        if lost := own.writes & (results if at in self.same else operands) | own.reads & results:
            yield f"uses {names(lost)}, which is in flight"
        if beyond := (own.reads | own.writes) & flight[_MISSING]:
            yield f"names {names(beyond)}, which its threads do not have"
        late, stores = own.opcode in _LATE or own.opcode == 0x9A8, own.kind == "store"
        if (late and own.word >> 110 & 7 == 7) or (stores and own.word >> 113 & 7 == 7):
            yield "has no scoreboard"

    def _unsafe(self, own: Inserted, at: int, values: Values) -> Iterator[str]:
        """Yield what an inserted instruction reads or stores to and may not."""
        reads = own.reads if own.kind not in ("branch", "save") else 0
        if own.kind == "store" and own.sources[1][1] == 4:  # a record's last word is anything
            reads &= ~(1 << own.sources[1][0] + 3)
        if self.declared.watches and (number := self.code.origin[self.code.behind[at]]) >= 0:
            reads &= ~self.effects[number].reads
        unknown = sum(1 << bit for bit in members(reads) if values.get(bit, LOST) == LOST)
        if unknown:
            yield f"reads {names(unknown)}, which no inserted one has set"
        if own.kind != "store":
            return
        (address, _), _, (pair, _) = own.sources
        near = own.opcode == 0x986 and not own.word >> 90 & 1
        place, number = (pair, address) if near else (address, -1)
        if values.get(own.guard) != ROOM or own.word >> 15 & 1:
            yield "stores where no guard says that there is room"
        if place < 0 or [values.get(place + n) for n in range(2)] != [LOW, HIGH]:
            yield "stores at an address that is not made of the cell's"
        if _of(values, number) not in _NUMBERS:
            yield "stores at an offset that is no number"
        if not near and [values.get(pair + n) for n in range(2)] != [MEMORY, MORE]:
            yield "does not name global memory"

    def _needed(self, restored: set[int], addresses: set[int], early: set[int]) -> Iterator[str]:
        """Yield inserted instructions that overwrite a live original value, or that nothing reads.

        Of a set of live registers, the lower half is for original code, the upper for inserted.
        """
        behind = self._live(restored)
        used = dict.fromkeys(self.ours, 0)
        for node, now in behind.items():
            if (at := node % self.count) not in self.ours:
                continue
            used[at] |= now >> BITS
            own = self.ours[at]
            # Before all original code, threads' registers have no values.
            lost = own.writes & now & (~R.all if node in early else -1)
            if lost and node not in restored and at not in self.same:
                yield f"{self.said(at)} overwrites {names(lost)}, which original code needs"
        reached = {node % self.count for node in behind}
        for at in sorted(
            reached & self.ours.keys() - addresses - {n % self.count for n in restored}
        ):
            if self.ours[at].writes and not self.ours[at].writes & used[at]:
                yield f"{self.said(at)} sets {names(self.ours[at].writes)}, which nothing reads"

    def _live(self, restored: set[int]) -> dict[int, int]:
        """Return the live registers behind each node, by backward dataflow."""
        before: dict[int, list[int]] = {head: [] for head in self.blocks}
        for head, tos in self.to.items():
            for to in (*tos, *([self.stay[head]] if head in self.stay else [])):
                before[to].append(head)
        does = {
            head: [
                (node, *some) for node in reversed(block) if any(some := self._does(node, restored))
            ]
            for head, block in self.blocks.items()
        }
        live, behind, work = dict.fromkeys(self.blocks, 0), dict[int, int](), list(self.blocks)
        while work:
            head = work.pop()
            now = live[self.stay[head]] & _STAYS if head in self.stay else 0
            for to in self.to[head]:
                now |= live[to]
            for node, reads, kills in does[head]:
                behind[node] = now
                now = now & ~kills | reads
            if now != live[head]:
                live[head] = now
                work += before[head]
        return behind

    def _does(self, node: int, restored: set[int]) -> tuple[int, int]:
        """Return the registers that are read and overwritten at a node."""
        at = node % self.count
        if (own := self.ours.get(at)) is not None:
            kills = own.writes << BITS if own.guard < 0 else 0
            return own.reads << BITS, kills | (own.writes if node in restored else 0)
        each = self.effects[self.code.origin[at]]
        traps = self.code.new[at] & 0xFFF in _ENDS  # behind it, all counts as read
        return each.reads | (((1 << BITS) - 1) << BITS) * traps, each.kills | each.kills << BITS


def _is_one(bit: int) -> bool:
    """Whether a register is a predicate, or none."""
    return bit >= UP.first or P.first <= bit < UR.first


def _of(values: Values, bit: int) -> int:
    return ZERO if bit < 0 else values.get(bit, OTHER)


def _restores(own: Inserted, values: Values) -> bool:
    """Whether an instruction sets a predicate again from a register that it was saved in."""
    if own.opcode != 0x80C or own.word >> 76 & 7 != 5 or own.word >> 32 & 0xFFFFFFFF:
        return False
    plain = own.guard < 0 and own.word >> 87 & 15 == 7 and own.targets[0][0] >= 0
    return plain and values.get(own.sources[0][0]) == -own.targets[0][0]


def _sum(factors: list[int], addends: list[int], *, whole: bool = False) -> int:
    """Return the sum of a product, of other values, and of a constant where it is not ``whole``."""
    whole, factors = whole or ZERO in factors, [] if ZERO in factors else factors
    some = [NUMBER] * bool(factors) + [each for each in addends if each != ZERO]
    numbers = sum(each in _NUMBERS for each in some)
    if any(each not in _NUMBERS for each in factors):
        return OTHER
    if len(some) == 1 and (whole or some[0] in (LOW, SIZE)):
        return some[0]
    if numbers == len(some):
        return NUMBER
    return LOW if LOW in some and numbers == len(some) - 1 else OTHER


def _merged(one: State, other: State) -> State:
    values, more = one[0].copy(), other[0]
    for bit in one[0].keys() | more.keys():
        left, right = values.get(bit, OTHER), more.get(bit, OTHER)
        values[bit] = left if left == right else LOST if LOST in (left, right) else OTHER
    return values, [a | b for a, b in zip(one[1], other[1], strict=True)]
