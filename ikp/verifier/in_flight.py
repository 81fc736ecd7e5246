"""``Waits``: registers that issued instructions have yet to write or read, and too early uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from ikp.sass.disassembly.effects import UR, P, R
from ikp.verifier.inserted_code import Inserted
from ikp.verifier.matched_code import names
from ikp.verifier.patched_graph import PatchedGraph

_FIRST_QUEUE = 25
_QUEUED = ("STG", "STS", "LDS", "LDGSTS", "SHFL", "MUFU", "STSM", "LDSM")
_QUEUES = {op: _FIRST_QUEUE + number for number, op in enumerate(_QUEUED)}
_NO_QUEUE = _FIRST_QUEUE + len(_QUEUES)
_SLOW = re.compile(
    r"(ST|RED|ATOM|LD|SYNCS|CCTL|UTMA|UBLK|BAR|SU|TEX|TLD).*|SHFL|MUFU|[FI]2[FI]|FRND|POPC|FLO"
    "|BREV|MATCH|FCHK|MOVM|QSPC|BMOV|NANOSLEEP|PIXLD|DMMA"
)
"""Operations that read their operands late: each queue in its order, all others in none."""
_PRODUCTS, STARTED, MISSING = 24, 34, 35
"""In flight, behind (results, operands) of original and inserted code for each scoreboard: those of
products; operands with no scoreboard; whether original code began; registers that are not there."""
_LATE = (0x919, 0x9C3, 0x7AC, 0xB82, 0x3C2, 0x9A8)  # of variable latency
_NUMBERS = R.all | UR.all
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
        self.count, self.registers = graph.count, registers

    def begin(self) -> Flight:
        """Return what is in flight where a kernel begins."""
        flight = [0] * (MISSING + 1)
        flight[MISSING] = R.all >> self.registers - 2 << self.registers - 2
        return flight

    def counts(self, number: int, boards: bool) -> bool:
        """Whether an original instruction changes what is in flight by more than its writes."""
        text, reads = self.code.text[number], self.effects[number].reads
        if _is_special(text.opcode) or (boards and text.op in _QUEUES):
            return True
        return bool(reads and (boards or _is_slow(text.op)))

    def step(self, at: int, flight: Flight) -> None:
        """Change what is in flight by the instruction at a place."""
        word = self.code.new[at]
        if word >> 116 & 63:
            for board in range(6):
                if word >> 116 + board & 1:
                    flight[4 * board : 4 * board + 4] = (0, 0, 0, 0)
        if (own := self.graph.ours.get(at)) is not None:
            _start_inserted(own, flight)
        else:
            flight[STARTED] = 1
            number = self.code.origin[at]
            self._start_original(number, word, flight)
            if _is_special(self.code.text[number].opcode):
                self._special(at, number, flight)

    def _start_original(self, number: int, word: int, flight: Flight) -> None:
        write, read, guard = word >> 110 & 7, word >> 113 & 7, word >> 12 & 7
        op, each = self.code.text[number].op, self.effects[number]
        board = read if read < 6 else write
        reads = each.reads & _NUMBERS if op == "LDGSTS" else each.reads
        if guard != 7:
            reads &= ~(1 << P.first + guard)
        if write < 6:
            flight[4 * write] |= each.writes
        queue = _QUEUES.get(op, _NO_QUEUE)
        if board < 6:
            flight[4 * board + 1] |= reads
            if op in _QUEUES and guard == 7:  # what the queue read before has been read by then
                flight[4 * board + 1] |= flight[queue]
                flight[queue] = 0
        elif reads and _is_slow(op):
            flight[queue] |= reads

    def _special(self, at: int, number: int, flight: Flight) -> None:
        """Change what is in flight by a wait that counts, by a product, by a hand-over."""
        text, each = self.code.text[number], self.effects[number]
        if text.op == "USETMAXREG":
            limit = min(int(text.operands[-1], 0), 255) - 2
            flight[MISSING] = R.all >> limit << limit
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
        found, seen, work = 0, set[int](), self.graph.after(arrive)
        while work:
            if (at := work.pop()) in seen:
                continue
            seen.add(at)
            number = self.code.origin[at % self.count]
            text = self.code.text[number] if number >= 0 else None
            if text is not None and "GMMA" in text.op:
                found |= self.effects[number].reads | self.effects[number].writes
            work += self.graph.after(at) if text is None or text.op != "WARPGROUP" else []
        return found

    def disturbed(self, node: int, flight: Flight) -> Iterator[str]:
        """Yield what inserted code has in flight where original code uses it, or leaves."""
        if not any(flight[2:_PRODUCTS:4]) and not any(flight[3:_PRODUCTS:4]):
            return
        waits, number = self.code.new[node % self.count] >> 116, self.code.origin[node % self.count]
        each, results, operands = self.effects[number], 0, 0
        for board in range(6):
            if not waits >> board & 1:
                results |= flight[4 * board + 2]
                operands |= flight[4 * board + 3]
        if node >= self.count and any(flight[n] for n in range(24) if n & 2):
            yield f"{self.code.said(number)} is left by threads whose store is in flight"
        if lost := (each.reads | each.writes) & results | each.writes & operands:
            yield f"{self.code.said(number)} uses {names(lost)}, in flight for inserted code"

    def busy(self, own: Inserted, at: int, flight: Flight) -> Iterator[str]:
        """Yield why an inserted instruction can't be issued yet."""
        same = at in self.graph.same
        results, operands = _awaited(own.word >> 116, flight)
        if not same:
            for each in flight[_PRODUCTS:STARTED]:
                operands |= each
        if lost := own.writes & (results if same else operands) | own.reads & results:
            yield f"uses {names(lost)}, which is in flight"
        if beyond := (own.reads | own.writes) & flight[MISSING]:
            yield f"names {names(beyond)}, which its threads do not have"
        if _lacks_a_scoreboard(own):
            yield "has no scoreboard"


def _start_inserted(own: Inserted, flight: Flight) -> None:
    write, read = own.word >> 110 & 7, own.word >> 113 & 7
    board, reads = read if read < 6 else write, own.reads
    if own.guard >= 0 and read < 6:
        reads &= ~(1 << own.guard)
    if write < 6:
        flight[4 * write + 2] |= own.writes
    if board < 6:
        flight[4 * board + 3] |= reads


def _awaited(waits: int, flight: Flight) -> tuple[int, int]:
    """Return results in flight, and these with operands, of scoreboards that are not waited for."""
    results = operands = 0
    for board in range(6):
        if not waits >> board & 1:
            result, operand, ours, own = flight[4 * board : 4 * board + 4]
            results |= result | ours
            operands |= operand | own
    return results, results | operands


def _lacks_a_scoreboard(own: Inserted) -> bool:
    late, stores = own.opcode in _LATE, own.kind == "store"
    return (late and own.word >> 110 & 7 == 7) or (stores and own.word >> 113 & 7 == 7)
