"""Control flow of patched code, and dataflow checks: live registers, and registers in flight.

A node is an instruction of the code. Threads that leave at an EXIT with a guard may run code in
front of it that the others skip. That code has nodes of its own, because the threads that come
there surely leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from ikp.verifier.moved import BSSY, BSYNC, BYTES, EXIT, TABLED, Moved, led
from ikp.verifier.original import ALL, FILES, UNIFORM, Effect, P, effect
from ikp.verifier.probe_forms import LATE, STORES, Inserted, decode

_BMOV = (0x355, 0x356, 0x955, 0x956)
_ULDC = 0xAB9
_DOES = (1 << 105) - 1
"""The bits of an instruction without those of its scheduling."""
_T = TypeVar("_T")
_LEAVES, _ENDS, _RET, _CALL, _BRA = (0x343, 0x943), (0x95B, 0x95C), 0x950, 0x944, 0x947
_QUEUES = ("STG", "STS", "LDS", "LDGSTS", "SHFL", "MUFU", "STSM", "LDSM")
_SLOW = ("ST", "RED", "ATOM", "LD", "SYNCS", "CCTL", "UTMA", "UBLK", "BAR", "SU", "TEX", "TLD")
_SLOW_TOO = (
    *("SHFL", "MUFU", "F2I", "I2F", "F2F", "FRND", "POPC", "FLO", "BREV", "MATCH", "FCHK"),
    *("MOVM", "QSPC", "BMOV", "NANOSLEEP", "PIXLD", "DMMA"),
)
"""Operations that may read their operands long after they were issued: by prefix, and by name."""
_ARGUMENTS, _ALWAYS = (1 << 32) - 1, 7
_PRODUCTS, _NO_BOARD = 24, 25
"""Indices into a state, behind four for each scoreboard: registers of warpgroups' products, and
registers that are read with no scoreboard held: one set for each queue, and one for all others."""
State = tuple[int, ...]


class Flow:
    """The patched code, as nodes and basic blocks of them.

    Args:
        moved: the patched code, matched with the plain one's.
        tables: of each original indirect branch, the instructions that it may lead to.
        asserts: original calls that never return.
    """

    def __init__(self, moved: Moved, tables: dict[int, list[int]], asserts: frozenset[int]) -> None:
        self.moved, self.asserts = moved, asserts
        self.ours = {
            at: decode(moved.new[at], moved.sm) for at, each in enumerate(moved.origin) if each < 0
        }
        self.named = 0
        for each in self.ours.values():
            self.named |= each.reads | each.writes
        self.where = list(range(len(moved.new)))
        self.after: dict[int, list[int]] = {}
        self.leaving: dict[int, int] = {}  # node of the threads that leave -> the EXIT's
        for start, places in moved.parts:
            self._ways(start, places, tables)
        for at in self.ours:
            if (to := moved.after_inserted(at)) != [at + 1]:
                self.after[at] = to
        self.effects = self._effects()
        for at, origin in enumerate(moved.origin):
            if origin >= 0 and moved.new[at] & 0xFFF == EXIT and conditions(moved.new[at]):
                self._apart(at)
        self._divide()

    def _ways(self, start: int, places: list[int], tables: dict[int, list[int]]) -> None:
        moved, code = self.moved, self.moved.new
        met: dict[int, list[tuple[int, int]]] = {}  # of a barrier: old and new targets
        # Where BMOV copies barriers to registers and back, each may be that of any BSSY.
        which = 0 if any(word & 0xFFF in _BMOV for word in moved.old) else 15
        for number, at in enumerate(places):
            if code[at] & 0xFFF == BSSY:
                old = led(moved.old[number], number, moved.sm) // BYTES
                new = led(code[at], at, moved.sm) // BYTES
                met.setdefault(code[at] >> 16 & which, []).append((old, new))
        returns = [places[call] + 1 for call in moved.calls]
        for number, at in enumerate(places):
            word = code[at]
            opcode, to = word & 0xFFF, [at + 1]
            if opcode in TABLED:
                to = tables.get(number, []) if not start else []
            elif opcode == BSYNC:
                found = met.get(word >> 16 & which, [])
                follows = not found or any(old == number + 1 for old, _ in found)
                to = to if follows else [*(new for _, new in found), *(to if not which else [])]
            else:
                to = self._way(number, at, returns)
            if to != [at + 1]:
                self.after[at] = to

    def _way(self, number: int, at: int, returns: list[int]) -> list[int]:
        """Return the successors of any other instruction."""
        word, line = self.moved.new[at], self.moved.text.lines[number]
        opcode, next_ = word & 0xFFF, [at + 1]
        if opcode == EXIT:
            return next_ if conditions(word) else []
        if opcode == _RET:
            return returns + next_ * line.startswith("@")
        if opcode in _ENDS or number in self.asserts:
            return next_ * line.startswith("@")
        if opcode in (_BRA, 0x547, _CALL):
            surely = line.startswith("BRA `(") or (opcode == _CALL and not line.startswith("@"))
            return [led(word, at, self.moved.sm) // BYTES, *(next_ * (not surely))]
        return next_

    def _effects(self) -> dict[int, Effect]:
        """Return the effects of original instructions on registers that inserted ones name."""
        own = list(map(effect, self.moved.text.lines))
        written = ALL >> P << P  # the registers that have values: of threads' own, those written
        for each in own:
            written |= each.writes if each.writes != ALL else 0
        for number, word in enumerate(self.moved.old):
            if word & 0xFFF in _LEAVES:
                reads = own[number].reads | _ARGUMENTS & written
                own[number] = Effect(reads, 0 if number in self.asserts else ALL, 0)
        known = [Effect(*(part & self.named for part in each)) for each in own]
        return {at: known[each] for at, each in enumerate(self.moved.origin) if each >= 0}

    def _apart(self, leave: int) -> None:
        """Add nodes for the code of threads that surely leave at an EXIT."""
        first, code = leave, self.moved.new
        while first - 1 in self.ours:
            first -= 1
        asked = conditions(code[leave])
        skips = [
            at
            for at in range(first, leave)
            if code[at] & 0xFFF == _BRA and (code[at] >> 12 & 15) ^ 8 in asked
        ]
        own = sum({1 << P + (each & 7) for each in asked})
        written = any(self.ours[at].writes & own for at in range(first, leave))
        if not skips or written:
            return
        beyond = len(self.where) - first
        self.where += range(first, leave + 1)
        for at in range(first, leave):
            to = self.after.get(at, [at + 1])
            inside = [each + beyond if first <= each <= leave else each for each in to]
            self.after[at + beyond] = [at + 1 + beyond] if at in skips else inside
        for at in skips:
            self.after[at] = [to for to in self.after[at] if to != at + 1] + [at + 1 + beyond]
        self.leaving[leave + beyond] = leave
        self.after[leave + beyond] = []

    def _divide(self) -> None:
        """Find the basic blocks."""
        count = len(self.where)
        first = {
            0,
            *(at + 1 for at in self.after),
            *(to for tos in self.after.values() for to in tos),
        }
        starts = sorted(each for each in first if each < count)
        self.blocks = [range(a, b) for a, b in zip(starts, [*starts[1:], count], strict=True)]
        number = {each.start: n for n, each in enumerate(self.blocks)}
        self.to = [
            [number[each] for each in self.after.get(block[-1], [block.stop]) if each in number]
            for block in self.blocks
        ]
        self.block = number
        self.come, work = set[int](), [0]  # blocks that can be reached
        while work:
            here = work.pop()
            work += [] if here in self.come else self.to[here]
            self.come.add(here)

    def inserted(self, node: int) -> Inserted | None:
        """Return the inserted instruction of a node, None for an original one."""
        return self.ours.get(self.where[node])

    def said(self, node: int) -> str:
        """Return a node's position, in words."""
        at, origin = self.where[node], self.moved.origin
        behind = next((each for each in origin[at:] if each >= 0), None)
        before = "the end" if behind is None else self.moved.said(behind).rstrip(",")
        return f"inserted instruction {at} ({self.moved.new[at]:#034x}, before {before})"

    def forward(
        self, begin: _T, through: Callable[[_T, range], _T], merged: Callable[[_T, _T], _T]
    ) -> list[_T | None]:
        """Return the state in which each block is entered, on any path; None: on no path."""
        entering: list[_T | None] = [None] * len(self.blocks)
        entering[0] = begin
        work = [0]
        while work:
            number = work.pop()
            state = entering[number]
            assert state is not None  # noqa: S101 - for the type checker
            leaving = through(state, self.blocks[number])
            for to in self.to[number]:
                known = entering[to]
                both = leaving if known is None else merged(known, leaving)
                if known is None or both != known:
                    entering[to] = both
                    work.append(to)
        return entering

    def needed(self, restored: set[int], addresses: set[int]) -> Iterator[str]:
        """Yield inserted instructions that overwrite a live original value, or that nothing reads.

        Args:
            restored: nodes that give a predicate the value which original code gave it.
            addresses: nodes that make an address, which no store need read.
        """
        entry = self._entry()
        for node, live in self._live(lambda node: self._theirs(node, restored), UNIFORM):
            lost = self.ours[self.where[node]].writes & live
            lost = lost >> P << P if node in entry else lost
            lost = 0 if lost and self._makes_the_same(node) else lost
            if lost and node not in restored:
                yield f"{self.said(node)} overwrites {names(lost)}, which original code needs"
        used: dict[int, int] = {}
        for node, live in self._live(self._own, ALL):
            used[self.where[node]] = used.get(self.where[node], 0) | live
        for node in sorted(set(used) - {self.where[each] for each in restored | addresses}):
            made = self.ours[node].writes
            if made and not made & used[node]:
                yield f"{self.said(node)} sets {names(made)}, which nothing reads"

    def _makes_the_same(self, node: int) -> bool:
        """Return whether original code sets a node's target only to the same constant."""
        at = self.where[node]
        ours, word = self.ours[at], self.moved.new[at] & _DOES
        others = [each for each, does in self.effects.items() if does.writes & ours.writes]
        same = all(self.moved.new[each] & _DOES == word for each in others)
        return bool(others) and same and ours.opcode == _ULDC

    def _theirs(self, node: int, restored: set[int]) -> tuple[int, int]:
        """Return the registers that original code reads and overwrites at a node."""
        if (own := self.inserted(node)) is None:
            each = self.effects[self.where[node]]
            return each.reads, each.kills
        return 0, own.writes if node in restored else 0

    def _own(self, node: int) -> tuple[int, int]:
        """Return the registers that inserted code reads, and those that a node overwrites."""
        at = self.where[node]
        if (own := self.inserted(node)) is None:  # behind a trap, all counts as read
            return ALL * (self.moved.new[at] & 0xFFF in _ENDS), self.effects[at].kills
        return own.reads, own.writes if own.guard < 0 else 0

    def _live(
        self, does: Callable[[int], tuple[int, int]], stays: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the live registers behind each node of inserted code, as a set.

        Args:
            does: the registers that a node reads and overwrites.
            stays: the registers that threads may read that stay where others leave.
        """
        live, before = [0] * len(self.blocks), [list[int]() for _ in self.blocks]
        summary = [[does(node) for node in reversed(block)] for block in self.blocks]
        stay: dict[int, int] = {}
        for number, tos in enumerate(self.to):
            leave = self.leaving.get(self.blocks[number][-1])
            if leave is not None and leave + 1 in self.block:
                stay[number] = self.block[leave + 1]
            for to in [*tos, *([stay[number]] if number in stay else [])]:
                before[to].append(number)
        work = list(range(len(self.blocks)))
        while work:
            number = work.pop()
            now = self._leaving(number, live, stay, stays)
            for reads, kills in summary[number]:
                now = now & ~kills | reads
            if now != live[number]:
                live[number] = now
                work += before[number]
        for number in self.come:
            now = self._leaving(number, live, stay, stays)
            for node, (reads, kills) in zip(
                reversed(self.blocks[number]), summary[number], strict=True
            ):
                if self.where[node] in self.ours:
                    yield node, now
                now = now & ~kills | reads

    def _leaving(self, number: int, live: list[int], stay: dict[int, int], stays: int) -> int:
        now = live[stay[number]] & stays if number in stay else 0
        for to in self.to[number]:
            now |= live[to]
        return now

    def _entry(self) -> set[int]:
        """Return the nodes before all original code, where threads' registers have no values."""
        found, work = set[int](), [0]
        while work:
            node = work.pop()
            if node in self.ours and node not in found:
                found.add(node)
                work += self.after.get(node, [node + 1])
        again = {to for node, tos in self.after.items() if node not in found for to in tos}
        return set() if again & found else found

    def pending(self) -> Iterator[str]:
        """Yield conflicts with registers in flight: overwritten, or read before they are there."""

        def through(state: State, block: range) -> State:
            now = list(state)
            for node in block:
                self._issue(node, now)
            return tuple(now)

        begin = (0,) * (_NO_BOARD + len(_QUEUES) + 1)
        entering = self.forward(
            begin, through, lambda a, b: tuple([x | y for x, y in zip(a, b, strict=True)])
        )
        for state, block in zip(entering, self.blocks, strict=True):
            now = list(state or begin)
            for node in block:
                yield from self._conflicts(node, now) if state else ()
                self._issue(node, now)

    def _conflicts(self, node: int, now: list[int]) -> Iterator[str]:
        at = self.where[node]
        waits = self.moved.new[at] >> 116 & 63
        boards = [4 * each for each in range(6) if not waits >> each & 1]
        own = self.ours.get(at)
        late = mine = reads = 0
        for each in boards:
            late |= now[each]
            reads |= now[each + 1] | now[each + 3]
            mine |= now[each + 2]
        if own is None:
            if node in self.leaving and any(
                now[each + 2] | now[each + 3] for each in range(0, 24, 4)
            ):
                yield f"{self.said(node)} leaves while an inserted store is in flight"
            theirs = self.effects[at]
            stored = 0
            for each in boards:
                stored |= now[each + 3]
            lost = (theirs.reads | theirs.writes) & mine | theirs.writes & stored
            if lost:
                said = self.moved.said(self.moved.origin[at])
                yield f"{said} uses {names(lost)}, still in flight for inserted code"
            return
        for each in now[_PRODUCTS:]:
            reads |= each
        reads = 0 if own.writes & reads and self._makes_the_same(node) else reads
        lost = own.writes & (late | mine | reads) | own.reads & (late | mine)
        if lost:
            yield f"{self.said(node)} uses {names(lost)}, which is in flight"
        write, read = self.moved.new[at] >> 110 & 7, self.moved.new[at] >> 113 & 7
        if (own.opcode in LATE and write == 7) or (own.kind in STORES and read == 7):
            yield f"{self.said(node)} has no scoreboard"
        if (1 << write | 1 << read) & self.counted & 63:
            yield f"{self.said(node)} takes a scoreboard that an original wait counts"

    @property
    def counted(self) -> int:
        """The scoreboards of counting waits, as bits."""
        return self._counted

    _counted = 0

    def _issue(self, node: int, now: list[int]) -> None:
        """Change a state by the issue of an instruction."""
        at = self.where[node]
        word, own = self.moved.new[at], self.ours.get(at)
        for each in range(6):
            if word >> 116 + each & 1:
                now[4 * each : 4 * each + 4] = (0, 0, 0, 0)
        write, read = word >> 110 & 7, word >> 113 & 7
        if own is not None:
            if write < 6:
                now[4 * write + 2] |= own.writes
                now[4 * write + 3] |= own.reads if read == 7 else 0
            if read < 6:
                now[4 * read + 3] |= own.reads & ~(1 << own.guard if own.guard >= 0 else 0)
            return
        self._original(at, word, write, read, now)

    def _original(self, at: int, word: int, write: int, read: int, now: list[int]) -> None:
        line, each = self.moved.text.lines[self.moved.origin[at]], self.effects[at]
        if "DEPBAR" in line or "WARPGROUP" in line or "GMMA" in line:
            self._products(at, line, now)
        if not (each.reads or each.writes or ((read < 6 or write < 6) and any(now[_NO_BOARD:]))):
            return
        guard = word >> 12 & 7
        reads = each.reads & ~(1 << P + guard if guard != 7 else 0)
        op = line.split(" ")[1 if line.startswith("@") else 0].partition(".")[0]
        reads &= UNIFORM | (1 << P) - 1 if op == "LDGSTS" else ALL
        queue = _NO_BOARD + (_QUEUES.index(op) if op in _QUEUES else len(_QUEUES))
        if write < 6:
            now[4 * write] |= each.writes
        if read < 6 or write < 6:
            board = read if read < 6 else write
            now[4 * board + 1] |= reads
            if op in _QUEUES and guard == 7:
                now[4 * board + 1] |= now[queue]
                now[queue] = 0
        elif op.startswith(_SLOW) or op in _SLOW_TOO:
            now[queue] |= reads

    def _products(self, at: int, line: str, now: list[int]) -> None:
        if "WARPGROUP.DEPBAR" in line:
            if line.rstrip().endswith(" 0x0"):
                now[_PRODUCTS] = 0
        elif "DEPBAR" in line:
            boards, _, left = line.partition(",")
            if "{" in line or left.strip() in ("", "0x0"):
                for each in range(6):
                    if f"SB{each}" in boards or (
                        "{" in line and str(each) in line.partition("{")[2]
                    ):
                        now[4 * each : 4 * each + 4] = (0, 0, 0, 0)
        elif "WARPGROUP.ARRIVE" in line:
            now[_PRODUCTS] |= self._given(at)
        elif "GMMA" in line:
            now[_PRODUCTS] |= self.effects[at].reads | self.effects[at].writes

    def _given(self, at: int) -> int:
        """Return the registers of the products that follow, up to the next WARPGROUP operation."""
        found, seen, work = 0, set[int](), self.after.get(at, [at + 1])[:]
        while work:
            here = work.pop()
            line = (
                self.moved.text.lines[self.moved.origin[here]]
                if here < len(self.moved.new) and self.moved.origin[here] >= 0
                else ""
            )
            if here in seen or here >= len(self.moved.new) or "WARPGROUP." in line:
                continue
            seen.add(here)
            if "GMMA" in line:
                found |= self.effects[here].reads | self.effects[here].writes
            work += self.after.get(here, [here + 1])
        return found


def conditions(word: int) -> list[int]:
    """Return the predicates of an EXIT's guards, each plus 8 where it is negated."""
    return [each for each in (word >> 12 & 15, word >> 87 & 15) if each != _ALWAYS]


def bits(some: int) -> Iterator[int]:
    """Yield the members of a set."""
    while some:
        yield (some & -some).bit_length() - 1
        some &= some - 1


def names(some: int) -> str:
    """Return registers in words."""
    name_of = {first: name for name, first in FILES.items()}
    found = []
    for bit in bits(some):
        first = max(each for each in name_of if each <= bit)
        found.append(f"{name_of[first]}{bit - first}")
    return ", ".join(found)
