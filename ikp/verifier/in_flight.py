"""``Waits``: registers that issued instructions have yet to write or read, and too early uses."""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from ikp.sass.disassembly.effects import UR, Effects, P, R
from ikp.verifier.inserted_code import Inserted
from ikp.verifier.matched_code import NOTHING, PatchedGraph, names

_RESULT, _OPERAND, _BESIDE = range(3)
_QUEUED = ("STG", "STS", "LDS", "LDGSTS", "SHFL", "MUFU", "STSM", "LDSM")
_SLOW = re.compile(
    r"(ST|RED|ATOM|LD|SYNCS|CCTL|UTMA|UBLK|BAR|SU|TEX|TLD).*|SHFL|MUFU|[FI]2[FI]|FRND|POPC|FLO"
    "|BREV|MATCH|FCHK|MOVM|QSPC|BMOV|NANOSLEEP|PIXLD|DMMA"
)
"""Operations that read their operands late: each queue in its order, all others in none."""
_LATE = (0x919, 0x9C3, 0x7AC, 0xB82, 0x3C2, 0x9A8)  # of variable latency
_PRODUCTS, _NO_QUEUE = (_OPERAND, "products"), ""
_MISSING, STARTED = (_BESIDE, "missing"), (_BESIDE, "started")
_AWAITED = [
    [(kind, n) for n in range(6) if mask >> n & 1 for kind in (_RESULT, _OPERAND)]
    for mask in range(64)
]  # by scoreboards, a bit each
Flight = dict[tuple[int, int | str], int]
"""Registers in flight: results and operands, each by its scoreboard, or by the operation that takes
none. Beside those of original code: registers that a thread does not have; and 1, once original
code has begun."""


@cache
def _is_slow(opcode: str) -> bool:
    """Whether an operation reads its operands late."""
    return _SLOW.fullmatch(opcode.partition(".")[0]) is not None


def _is_special(opcode: str) -> bool:
    """Whether an operation is a wait that counts, a product, or a hand-over of registers."""
    op = opcode.partition(".")[0]
    return "DEPBAR" in opcode or "GMMA" in op or op.startswith(("WARPG", "USETM"))


def begin(registers: int) -> Flight:
    """Return what is in flight where a kernel begins, whose threads have so many registers."""
    return {_MISSING: R.all >> registers - 2 << registers - 2}


def _wait(mask: int, *flights: Flight) -> None:
    """Take what is by some scoreboards, a bit each, out of what is in flight."""
    for key in _AWAITED[mask]:
        for flight in flights:
            if key in flight:
                del flight[key]


def _add(flight: Flight, kind: int, by: int | str, some: int) -> None:
    if some:
        flight[kind, by] = flight.get((kind, by), 0) | some


def _early(flight: Flight, used: int, written: int) -> int:
    """Return registers that are used before their results are there, or written before read."""
    found, wanted = 0, (used, written, 0)
    for (kind, _), some in flight.items():
        found |= some & wanted[kind]
    return found


class Waits:
    """How instructions change which registers are in flight, and what may not use these.

    Args:
        graph: the patched code, matched with the plain one's.
    """

    def __init__(self, graph: PatchedGraph) -> None:
        self.graph, self.code, self.listed = graph, graph.code, graph.code.listed
        self.effects, text, controls = graph.effects, graph.code.text, graph.code.text.controls
        self.waited, self.special = controls.waits.tolist(), {*text.having(_is_special)}
        self.boarded = list(zip(controls.writes.tolist(), controls.reads.tolist(), strict=True))
        self.guards = (graph.code.rows[:, 0] >> np.uint64(12) & np.uint64(7)).tolist()
        taken = {*np.flatnonzero(np.minimum(controls.writes, controls.reads) < 6).tolist()}
        slow = {n for n in taken.union(text.having(_is_slow)) if n in self.effects}
        # Only a queue with operands that no scoreboard reports has any for a later instruction's.
        untold = {self.listed[n].op for n in slow - taken}.intersection(_QUEUED)
        self.starting = slow | taken.intersection(text.of(*untold))
        ours = {own.word >> at & 7 for own in graph.ours.values() for at in (110, 113)}
        theirs = {*controls.writes[[*self.starting]], *controls.reads[[*self.starting]]}
        self.boards = sum(1 << int(board) for board in ours | theirs if board < 6)
        """The scoreboards that anything in flight may have, a bit each."""

    def issue(self, at: int, number: int, flight: Flight, mine: Flight) -> list[str]:
        """Change what is in flight by the original instruction at a place.

        Args:
            at: the place.
            number: the instruction.
            flight: what is in flight of original code; changed.
            mine: what is of inserted code; changed.

        Returns:
            What it uses of inserted code's.
        """
        each = self.effects.get(number, NOTHING)
        if mask := self.waited[number]:
            _wait(mask, flight, mine)
        lost = _early(mine, each.reads | each.writes, each.writes) if mine else 0
        if number in self.starting:
            self._start(number, each, flight)
        if number in self.special:
            self._special(at, number, each, flight)
        uses = f" uses {names(lost)}, in flight for inserted code" if lost else ""
        return [self.code.said(number) + uses] if lost else []

    def _start(self, number: int, each: Effects, flight: Flight) -> None:
        (write, read), op = self.boarded[number], self.listed[number].op
        board, queued, guard = read if read < 6 else write, op in _QUEUED, self.guards[number]
        reads, writes = each.reads & self.graph.named, each.writes & self.graph.named
        if op == "LDGSTS":
            reads &= R.all | UR.all
        if guard != 7:
            reads &= ~(1 << P.first + guard)
        if write < 6:
            _add(flight, _RESULT, write, writes)
        if board < 6:
            if queued and guard == 7:  # what the queue read before has been read by then
                reads |= flight.pop((_OPERAND, op), 0)
            _add(flight, _OPERAND, board, reads)
        elif _is_slow(op):
            _add(flight, _OPERAND, op if queued else _NO_QUEUE, reads)

    def _special(self, at: int, number: int, each: Effects, flight: Flight) -> None:
        """Change what is in flight by a wait that counts, by a product, by a hand-over."""
        text = self.listed[number]
        if text.op == "USETMAXREG":
            limit = min(int(text.operands[-1], 0), 255) - 2
            flight[_MISSING] = R.all >> limit << limit
        elif "DEPBAR" in text.opcode:
            listed = re.search(r"\{([\d,]+)\}", text.rest)
            boards = listed[1].split(",") if listed else re.findall(r"SB(\d)", text.rest)
            if listed or "," not in text.rest or text.rest.strip().endswith(" 0x0"):
                if text.op == "WARPGROUP":
                    flight.pop(_PRODUCTS, None)
                _wait(sum({1 << int(board) for board in boards}), flight)
        elif "GMMA" in text.op:
            _add(flight, *_PRODUCTS, each.reads | each.writes)
        elif text.opcode.startswith("WARPGROUP.ARRIVE"):
            _add(flight, *_PRODUCTS, self._given(at))

    def _given(self, arrive: int) -> int:
        """Return the registers of the products behind an arrival, up to the next of these."""
        found, seen, work = 0, set[int](), self.graph.after(arrive)
        while work:
            if (at := work.pop()) in seen:
                continue
            seen.add(at)
            number = self.code.origin[at]
            op = self.listed[number].op if number >= 0 else ""
            if "GMMA" in op:
                each = self.effects.get(number, NOTHING)
                found |= each.reads | each.writes
            work = work + self.graph.after(at) if op != "WARPGROUP" else work
        return found

    def insert(self, own: Inserted, flight: Flight, mine: Flight, *, same: bool) -> list[str]:
        """Change what is in flight by an inserted instruction.

        Args:
            own: the instruction.
            flight: what is in flight of original code; changed.
            mine: what is of inserted code; changed.
            same: whether its target has its result already, so those who read that may do so later.

        Returns:
            Why it can't be issued yet.
        """
        if mask := own.word >> 116 & 63:
            _wait(mask, flight, mine)
        used, written, found = own.reads | own.writes, own.writes * (not same), list[str]()
        if lost := _early(flight, used, written) | _early(mine, used, written):
            found.append(f"uses {names(lost)}, which is in flight")
        if beyond := used & flight[_MISSING]:
            found.append(f"names {names(beyond)}, which its threads do not have")
        write, read = own.word >> 110 & 7, own.word >> 113 & 7
        if (write == 7 and own.word & 0xFFF in _LATE) or (read == 7 and own.kind == "store"):
            found.append("has no scoreboard")
        if write < 6:
            _add(mine, _RESULT, write, own.writes)
        if min(read, write) < 6:
            reads = own.reads & ~(1 << own.guard if own.guard >= 0 and read < 6 else 0)
            _add(mine, _OPERAND, read if read < 6 else write, reads)
        return found
