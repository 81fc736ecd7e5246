"""``Waits``: registers that issued instructions have yet to write or read, and too early uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, reduce
from operator import or_

import numpy as np

from ikp.sass.disassembly.effects import UR, P, R
from ikp.verifier.inserted_code import Inserted
from ikp.verifier.matched_code import names
from ikp.verifier.patched_graph import PatchedGraph

_OPERANDS, OURS, _OUR_OPERANDS, PRODUCTS, _FIRST_QUEUE, STARTED, MISSING = 6, 12, 18, 24, 25, 34, 35
"""In flight: for each scoreboard, the registers of results, then of operands, of original code, and
both of inserted code; those of products; operands with no scoreboard; whether original code began;
registers that are not there."""
_QUEUED = ("STG", "STS", "LDS", "LDGSTS", "SHFL", "MUFU", "STSM", "LDSM")
_QUEUES = {op: _FIRST_QUEUE + number for number, op in enumerate(_QUEUED)}
_NO_QUEUE = _FIRST_QUEUE + len(_QUEUES)
_SLOW = re.compile(
    r"(ST|RED|ATOM|LD|SYNCS|CCTL|UTMA|UBLK|BAR|SU|TEX|TLD).*|SHFL|MUFU|[FI]2[FI]|FRND|POPC|FLO"
    "|BREV|MATCH|FCHK|MOVM|QSPC|BMOV|NANOSLEEP|PIXLD|DMMA"
)
"""Operations that read their operands late: each queue in its order, all others in none."""
_LATE = (0x919, 0x9C3, 0x7AC, 0xB82, 0x3C2, 0x9A8)  # of variable latency
_NUMBERS = R.all | UR.all
_CLEARED = [[n for n in range(PRODUCTS) if waits >> n % 6 & 1] for waits in range(64)]
"""What is no more in flight behind a wait for some scoreboards, a bit each."""
Flight = list[int]


@cache
def _is_slow(op: str) -> bool:
    """Whether an operation reads its operands late."""
    return _SLOW.fullmatch(op) is not None


@cache
def _is_special(opcode: str) -> bool:
    """Whether an operation is a wait that counts, a product, or a hand-over of registers."""
    op = opcode.partition(".")[0]
    return "DEPBAR" in opcode or "GMMA" in op or op.startswith(("WARPG", "USETM"))


class Waits:
    """How instructions change which registers are in flight, and what may not use these.

    Args:
        graph: the patched code.
        registers: how many each thread has.
    """

    def __init__(self, graph: PatchedGraph, registers: int) -> None:
        self.graph, self.code, self.effects = graph, graph.code, graph.effects
        self.count, self.registers, self.listed = graph.count, registers, self.code.listed
        self.starting, self.waited = self._starting(), self.code.text.controls.waits.tolist()
        self.special = set(self.code.text.having(_is_special))

    def begin(self) -> Flight:
        """Return what is in flight where a kernel begins."""
        flight = [0] * (MISSING + 1)
        flight[MISSING] = R.all >> self.registers - 2 << self.registers - 2
        return flight

    def _starting(self) -> set[int]:
        """Return the original instructions that may put anything in flight."""
        boards = self.code.rows[0][:, 1] >> np.uint64(46) & np.uint64(63)
        taken, listed = set(np.flatnonzero(boards != 63).tolist()), self.code.text
        late = taken.union(listed.having(lambda opcode: _is_slow(opcode.partition(".")[0])))
        return {n for n in late if any(self.effects[n])} | taken.intersection(listed.of(*_QUEUED))

    def issue(self, at: int, number: int, flight: Flight) -> None:
        """Change what is in flight by the original instruction at a place."""
        for n in _CLEARED[self.waited[number]]:
            flight[n] = 0
        if number in self.starting:
            self._start(number, flight)
        if number in self.special:
            self._special(at, number, flight)

    def _start(self, number: int, flight: Flight) -> None:
        word, op, each = self.code.old[number], self.listed[number].op, self.effects[number]
        write, read, guard = word >> 110 & 7, word >> 113 & 7, word >> 12 & 7
        board, queue = read if read < 6 else write, _QUEUES.get(op, _NO_QUEUE)
        reads = each.reads & _NUMBERS if op == "LDGSTS" else each.reads
        if guard != 7:
            reads &= ~(1 << P.first + guard)
        if write < 6:
            flight[write] |= each.writes
        if board < 6:
            flight[_OPERANDS + board] |= reads
            if op in _QUEUES and guard == 7:  # what the queue read before has been read by then
                flight[_OPERANDS + board] |= flight[queue]
                flight[queue] = 0
        elif _is_slow(op):
            flight[queue] |= reads

    def _special(self, at: int, number: int, flight: Flight) -> None:
        """Change what is in flight by a wait that counts, by a product, by a hand-over."""
        text, each = self.listed[number], self.effects[number]
        if text.op == "USETMAXREG":
            limit = min(int(text.operands[-1], 0), 255) - 2
            flight[MISSING] = R.all >> limit << limit
        elif "DEPBAR" in text.opcode:
            listed = re.search(r"\{([\d,]+)\}", text.rest)
            boards = listed[1].split(",") if listed else re.findall(r"SB(\d)", text.rest)
            if listed or "," not in text.rest or text.rest.strip().endswith(" 0x0"):
                flight[PRODUCTS] *= text.op != "WARPGROUP"
                for board in map(int, boards):
                    for n in _CLEARED[1 << board]:
                        flight[n] = 0
        elif "GMMA" in text.op:
            flight[PRODUCTS] |= each.reads | each.writes
        elif text.opcode.startswith("WARPGROUP.ARRIVE"):
            flight[PRODUCTS] |= self._given(at)

    def _given(self, arrive: int) -> int:
        """Return the registers of the products behind an arrival, up to the next of these."""
        found, seen, work = 0, set[int](), self.graph.after(arrive)
        while work:
            if (at := work.pop()) in seen:
                continue
            seen.add(at)
            number = self.code.origin[at % self.count]
            text = self.listed[number] if number >= 0 else None
            if text is not None and "GMMA" in text.op:
                found |= self.effects[number].reads | self.effects[number].writes
            work += self.graph.after(at) if text is None or text.op != "WARPGROUP" else []
        return found

    def disturbed(self, node: int, flight: Flight) -> Iterator[str]:
        """Yield what inserted code has in flight where original code uses it, or leaves."""
        if node >= self.count:
            number = self.code.origin[node - self.count]
            yield f"{self.code.said(number)} is left by threads whose store is in flight"
        number = self.code.origin[node % self.count]
        each, left = self.effects[number], flight.copy()
        for n in _CLEARED[self.code.old[number] >> 116 & 63]:
            left[n] = 0
        results, operands = _all(left[OURS:_OUR_OPERANDS]), _all(left[_OUR_OPERANDS:PRODUCTS])
        if lost := (each.reads | each.writes) & results | each.writes & operands:
            yield f"{self.code.said(number)} uses {names(lost)}, in flight for inserted code"

    def insert(self, own: Inserted, at: int, flight: Flight) -> Iterator[str]:
        """Change what is in flight by an inserted instruction; yield why it can't be issued yet."""
        for n in _CLEARED[own.word >> 116 & 63]:
            flight[n] = 0
        if (own.reads | own.writes) & _all(flight[:STARTED]):
            results = _all(flight[:_OPERANDS] + flight[OURS:_OUR_OPERANDS])
            written = results if at in self.graph.same else _all(flight[:STARTED])
            if lost := own.writes & written | own.reads & results:
                yield f"uses {names(lost)}, which is in flight"
        if beyond := (own.reads | own.writes) & flight[MISSING]:
            yield f"names {names(beyond)}, which its threads do not have"
        write, read = own.word >> 110 & 7, own.word >> 113 & 7
        if (write == 7 and own.opcode in _LATE) or (read == 7 and own.kind == "store"):
            yield "has no scoreboard"
        if write < 6:
            flight[OURS + write] |= own.writes
        if read < 6:
            flight[_OUR_OPERANDS + read] |= own.reads & ~(1 << own.guard if own.guard >= 0 else 0)
        elif write < 6:
            flight[_OUR_OPERANDS + write] |= own.reads


def _all(some: Flight) -> int:
    return reduce(or_, some)
