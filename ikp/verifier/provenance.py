"""Provenance of register values in inserted code: each store's address, offset and guard.

An address is made of the cell's first 64 bits, whose upper half is never changed: to the lower one,
numbers are added. Clocks are no numbers. A store must have a guard that says that there is room, by
a size in the cell. Registers that original code writes, or that differ by path, are unknown from
then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from ikp.verifier.dataflow import Flow, bits, names
from ikp.verifier.declared import Declared
from ikp.verifier.original import FILES
from ikp.verifier.probe_forms import STORES, Inserted, constant, decode, near

ZERO, NUMBER, SIZE, LOW, HIGH, ROOM, OTHER, LOST = (
    *("zero", "number", "size", "low", "high", "room"),
    *("other", "lost"),
)
"""Abstract values of a register; ``LOST``: original code has written it since."""
MEMORY = ("memory", "memory+")  # the two halves of the descriptor of global memory
_MEMORY_AT: Final = {0x160: 0x118, 0x210: 0x208, 0x380: 0x358}
"""The offset of parameters in the constants -> that of the descriptor of global memory."""
_NUMBERS = (ZERO, NUMBER, SIZE)
_LIMIT, _KEPT = -1, 2
"""A state's key of the least registers of a thread, and how many of the last no code may use."""
_COPIES = (0x202, 0xC02, 0xC82, 0x2CA, 0x3C2)
_BELOW, _DIFFERS, _UNSIGNED_AND, _CLOCKS = 1, 5, 0xE00, (0x50, 0x53)
_PREDICATES, _ALWAYS = (1 << FILES["UR"]) - (1 << FILES["P"]), 7
State = dict[int, object]


class Values:
    """Computes the abstract values of registers along the control flow.

    Args:
        flow: the patched code.
        declared: the differences that the patch declares: its cell, and registers.
        base: the offset of a kernel's parameters in the constants.
    """

    def __init__(self, flow: Flow, declared: Declared, base: int) -> None:
        self.flow, self.declared, self.base = flow, declared, base
        self.restored: set[int] = set()
        self.addresses: set[int] = set()

    def check(self) -> Iterator[str]:
        """Yield the faults.

        Afterwards, ``restored`` has the nodes that restore predicates, and ``addresses`` those that
        make an address: where nothing is recorded, no store reads some of these.
        """
        begin: State = {_LIMIT: self.declared.registers}
        entering = self.flow.forward(begin, self._through, _merged)
        for state, block in zip(entering, self.flow.blocks, strict=True):
            now = dict(state or {})
            for node in block if state is not None else ():
                own = self.flow.inserted(node)
                if own is not None:
                    yield from self._wrong(node, own, now)
                self._step(node, now)
                if own is not None and any(now.get(bit) in (LOW, HIGH) for bit in bits(own.writes)):
                    self.addresses.add(node)

    def _through(self, state: State, block: range) -> State:
        now = dict(state)
        for node in block:
            self._step(node, now)
        return now

    def _step(self, node: int, now: State) -> None:
        own = self.flow.inserted(node)
        if own is None:
            self._original(self.flow.where[node], now)
        elif self._restores(own, now):
            now[own.sources[0][0]] = OTHER
            now[own.targets[0][0]] = LOST
        elif own.targets:
            made = self._made(own, now)
            for (first, count), values in zip(own.targets, (made, ()), strict=False):
                for n in range(count if first >= 0 else 0):
                    value = (values[n] if n < len(values) else None) or OTHER
                    value = OTHER if value == LOST else value
                    now[first + n] = (
                        OTHER if own.guard >= 0 and now.get(first + n) != value else value
                    )

    def _original(self, at: int, now: State) -> None:
        written = self.flow.effects[at].writes
        if at in self._limits:
            now[_LIMIT] = self._limits[at]
        if not written:
            return
        for bit in bits(written):
            now[bit] = LOST
        if written & _PREDICATES:
            saved = [bit for bit, value in now.items() if isinstance(value, tuple)]
            now |= {bit: OTHER for bit in saved if written >> now[bit][1] & 1}  # type: ignore[index]
        word = self.flow.moved.new[at]
        if word & 0xFFF in (0xAB9, 0x7AC) and word >> 12 & 15 == _ALWAYS:
            self._loaded(decode(word, self.flow.moved.sm), now)

    @cached_property
    def _limits(self) -> dict[int, int]:
        """Register hand-overs -> how many registers each thread has then."""
        lines = self.flow.moved.text.lines
        counts = {
            n: min(int(e.split()[-1], 0), 255) for n, e in enumerate(lines) if "USETMAXREG" in e
        }
        return {at: counts[n] for at, n in enumerate(self.flow.moved.origin) if n in counts}

    def _loaded(self, own: Inserted, now: State) -> None:
        (first, count), values = own.targets[0], self._constant(own)
        if first >= 0 and count == 2 and tuple(values) == MEMORY:
            now |= {first: MEMORY[0], first + 1: MEMORY[1]}

    def _wrong(self, node: int, own: Inserted, now: State) -> Iterator[str]:
        limit = now[_LIMIT]
        if isinstance(limit, int) and (own.reads | own.writes) % (1 << 255) >> limit - _KEPT:
            yield f"{self.flow.said(node)} names a register beyond the {limit} that a thread has"
        if self._restores(own, now):
            self.restored.add(node)
        if unknown := self._unknown(node, own, now):
            yield f"{self.flow.said(node)} reads {names(unknown)}, which no inserted one has set"
        if own.kind not in STORES:
            return
        address, _, pair = own.sources
        if now.get(own.guard) != ROOM or not own.holds:
            yield f"{self.flow.said(node)} stores where no guard says that there is room"
        place, memory = (pair, None) if near(own) else (address, pair)
        if [self._of(now, place[0] + n) for n in range(2)] != [LOW, HIGH] or place[0] < 0:
            yield f"{self.flow.said(node)} stores at an address that is not made of the cell's"
        if memory is None and self._of(now, address[0]) not in _NUMBERS:
            yield f"{self.flow.said(node)} stores at an offset that is no number"
        if memory is not None and tuple(self._of(now, memory[0] + n) for n in range(2)) != MEMORY:
            yield f"{self.flow.said(node)} does not name global memory"

    def _unknown(self, node: int, own: Inserted, now: State) -> int:
        """Return the registers that a node reads and may not, as a set."""
        bare = own.reads if own.kind not in ("branch", "save") else 0
        if own.kind == "store" and own.sources[1][1] == 4:  # a record's last word is anything
            bare &= ~(1 << own.sources[1][0] + 3)
        if self.declared.watches:
            bare &= ~self._watched(node)
        return sum(1 << bit for bit in bits(bare) if now.get(bit, LOST) == LOST)

    def _watched(self, node: int) -> int:
        """Return the registers that the next original instruction reads, as a set."""
        origin, at = self.flow.moved.origin, self.flow.where[node]
        while at < len(origin) and origin[at] < 0:
            at += 1
        return self.flow.effects[at].reads if at < len(origin) else 0

    @staticmethod
    def _of(now: State, bit: int) -> object:
        return ZERO if bit < 0 else now.get(bit)

    @staticmethod
    def _restores(own: Inserted, now: State) -> bool:
        """Whether a predicate is set again from a register that it was saved in."""
        if own.opcode != 0x80C or own.word >> 76 & 7 != _DIFFERS or own.word >> 32 & 0xFFFFFFFF:
            return False
        plain = own.guard < 0 and own.word >> 87 & 15 == 7
        return plain and now.get(own.sources[0][0]) == ("saved", own.targets[0][0])

    def _made(self, own: Inserted, now: State) -> Sequence[object]:
        """Return the abstract values of an instruction's results."""
        values = [self._of(now, first) for first, _ in own.sources]
        mask = own.word >> 32 & 0xFFFFFFFF
        found: Sequence[object] = ()
        clock = own.kind == "number" and _CLOCKS[0] <= own.word >> 72 & 0xFF <= _CLOCKS[1]
        if own.kind in ("number", "atomic") and not clock:
            found = [NUMBER]
        elif own.kind == "load":
            found = self._constant(own)
        elif own.kind == "pair" and values[:2] == [ZERO, ZERO]:
            found = [now.get(own.sources[-1][0] + n) for n in range(2)]
        elif own.kind == "save" and mask.bit_count() == 1 and mask < 1 << 7:
            found = [("saved", FILES["P"] + mask.bit_length() - 1)]
        elif own.kind == "test":
            found = [self._tested(own, now)]
        elif own.kind == "sum":
            found = [_sum(values, own.opcode in _COPIES)]
        elif own.kind in ("product", "scaled", "shifted"):
            count = 2 if own.kind == "product" else 1
            found = [_scaled(values[:count], values[count:])]
        elif own.kind == "mixed":
            words = [
                value for value, (bit, _) in zip(values, own.sources, strict=True) if _is_word(bit)
            ]
            found = [_sum(words) if all(each in _NUMBERS for each in words) else None]
        return found

    def _tested(self, own: Inserted, now: State) -> object:
        """Return whether a predicate says that there is room: a number is below a size."""
        *words, (where, _) = own.sources
        below = own.word >> 76 & 7 == _BELOW and own.opcode in (0x20C, 0xC0C)
        size = below and self._of(now, words[-1][0]) == SIZE
        both = own.word >> 64 & _UNSIGNED_AND == 0 and not own.word >> 90 & 1
        return ROOM if both and (size or (where >= 0 and now.get(where) == ROOM)) else None

    def _constant(self, own: Inserted) -> Sequence[object]:
        bank, offset = constant(own.word)
        return [self._word(bank, offset + 4 * n) for n in range(own.targets[0][1])]

    def _word(self, bank: int, offset: int) -> object:
        memory = _MEMORY_AT.get(self.base)
        if bank == self.declared.bank and 0 <= offset - self.declared.cell < self.declared.nbytes:
            number = (offset - self.declared.cell) // 4
            return (LOW, HIGH, SIZE)[number] if number < 3 else NUMBER
        if bank or offset >= self.base or memory is None:
            return None
        return MEMORY[(offset - memory) // 4] if memory <= offset < memory + 8 else NUMBER


def _is_word(bit: int) -> bool:
    return bit < FILES["P"] or FILES["UR"] <= bit < FILES["UP"]


def _scaled(factors: Sequence[object], rest: Sequence[object]) -> object:
    """Return the product of some values, and the sum of that and others."""
    if ZERO in factors:
        return _sum(rest, whole=True)
    return _sum([NUMBER, *rest]) if all(each in _NUMBERS for each in factors) else None


def _sum(values: Sequence[object], whole: bool = False) -> object:
    """Return the sum of some values, and of a constant if it is not ``whole``."""
    some = [each for each in values if each != ZERO]
    if not some:
        return NUMBER
    if len(some) == 1 and (whole or some[0] in (LOW, SIZE, NUMBER)):
        return some[0]
    numbers = [each for each in some if each in _NUMBERS]
    if len(numbers) == len(some):
        return NUMBER
    return LOW if LOW in some and len(numbers) == len(some) - 1 else None


def _merged(one: State, other: State) -> State:
    both: State = {}
    for bit in one.keys() | other.keys():
        left, right = one.get(bit), other.get(bit)
        both[bit] = left if left == right else LOST if LOST in (left, right) else OTHER
    limits = one[_LIMIT], other[_LIMIT]
    return {**both, _LIMIT: min(each for each in limits if isinstance(each, int))}
