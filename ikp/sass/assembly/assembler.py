"""Assembler: turns instructions into words with stalls and waits, and orders them for few stalls.

SASS schedules itself. Each word holds for how many cycles the next instruction is held back (its
stall), and for which of six scoreboards it waits. ``assemble`` computes both for a sequence of
instructions, from their latencies; it knows nothing of the code around them. ``reordered`` is a
list scheduler, which puts a sequence in an order with fewer stalls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ikp.sass.cubins.instruction import BYTES, WIDE, DistanceField

Resource: TypeAlias = tuple[str, int]
"""A register: its file (``"R"``, ``"U"``, ``"P"``) and its number."""

NEVER: Final = 0
"""The latency of an instruction whose end only a scoreboard reports."""
PT: Final = 7
"""The predicate that always holds."""

_NO_SCOREBOARD = 7
_CONTROL_AT = 105
_GUARD = 0xF000
_OPCODE, _CLOCK = 0xFFF, 0x805
_MOST_STALL = 15
_PATIENT_STALL = 2
"""At longer stalls, the yield bit lets the scheduler switch to another warp."""
GUARD_LATER: Final = 7
"""A predicate can be read by an operation so many cycles before it can guard one."""
CHAINED: Final = 5
"""The uniform datapath can read its own results so many cycles later, at the latest."""
_READ: Final = 3
"""After so many cycles the uniform datapath has read its registers: compilers write none of them
before. On an H200, a constant that was written after one cycle was multiplied instead of the
register's earlier value."""
_UNIFORM: Final = ("U", "UP")
"""The files that the uniform datapath reads: its registers, and its predicates."""
_COUNTS: Final = 0x890
"""An addition to a uniform register: on the uniform datapath, too."""
_SIGNAL_STALL = 2
"""A scoreboard is taken one cycle after the instruction that takes it has issued."""


class Step(NamedTuple):
    """One instruction before scheduling.

    ``low`` and ``high`` are the halves of its word, without control bits and guard.
    """

    low: int
    high: int
    reads: frozenset[Resource] = frozenset()
    writes: frozenset[Resource] = frozenset()
    time: int = 6  # cycles until its results can be read; NEVER: a scoreboard reports that
    keeps: bool = False  # it reads its registers some time after it has issued: a store
    stall: int = 1  # at least
    guard: int = PT
    inverted: bool = False  # it runs where the guard is false
    waits: int = 0  # a mask of scoreboards, beside those that its registers need
    skips: int = 0  # a branch over so many of the next steps
    left: bool = False  # the reader of its results waits for them, in another sequence
    uniform: bool = False  # the uniform datapath computes it from uniform registers alone
    far: DistanceField = WIDE  # the field of a branch's distance

    def when(self, predicate: int, *, holds: bool = True) -> Step:
        """Return the same instruction, run only by threads whose predicate is ``holds``."""
        reads = self.reads | {("P", predicate)}
        return self._replace(guard=predicate, inverted=not holds, reads=reads)

    def after(self, scoreboards: int) -> Step:
        """Return the same instruction, which first waits for a mask of scoreboards."""
        waits = self.waits | scoreboards
        return self if waits == self.waits else self._replace(waits=waits)


NOP: Final = Step(0x7918, 0)
_TO_NEXT_NOP = 8
"""Cycles from one ``NOP`` to the next. A barrier that issued seven cycles before holds one back."""
_NOTHING: Final[Mapping[Resource, int]] = {}


def _reads_clock(step: Step) -> bool:
    return step.low & _OPCODE == _CLOCK


def behind_barrier(steps: Sequence[Step]) -> list[Step]:
    """Return a sequence which reads no clock before the wait of a barrier that has just issued."""
    if not any(map(_reads_clock, steps)):
        return [*steps]
    return [NOP._replace(stall=_TO_NEXT_NOP), NOP, *steps]


def assemble(
    steps: Sequence[Step],
    scoreboard: int,
    settled: str = "RUP",
    late: Mapping[Resource, int] = _NOTHING,
) -> list[int]:
    """Return the words of a sequence of instructions.

    At the end of the sequence, its results can be read. Stores may still have to read their
    registers: the next instruction that writes these waits for the scoreboard.

    Args:
        steps: the instructions, in the order in which they run.
        scoreboard: one that no other instruction in flight here holds.
        settled: the register files whose results can be read at the end; no code reads those of the
            other files so soon.
        late: earlier results, each with the cycles until it can be read.
    """
    parts = spread(steps, scoreboard, (), settled, late)
    return [word for _, words in parts for word in words]


def spread(
    steps: Sequence[Step],
    scoreboard: int,
    cycles: Sequence[int],
    settled: str = "RUP",
    late: Mapping[Resource, int] = _NOTHING,
) -> list[tuple[int, list[int]]]:
    """Return the words of a sequence in parts, between which instructions of the kernel can run.

    The kernel's instructions fill the latency that would otherwise be stalls and NOPs. Only what
    follows the last clock read is delayed like this.

    Args:
        steps: as for ``assemble``.
        scoreboard: as for ``assemble``.
        cycles: the least stall of each instruction of the kernel that may run between the parts;
            these name no register that the sequence names.
        settled: as for ``assemble``.
        late: as for ``assemble``.

    Returns:
        The words of each part, with how many instructions of the kernel precede it.
    """
    ordered = _with_waits(steps, 1 << scoreboard)
    stalls, pads, passed = _times(ordered, settled, cycles, late)
    words: list[int] = []
    starts: list[int] = []  # of each step, among the words
    for pad in pads:
        words += [_word(NOP, stall, scoreboard) for stall in pad]
        starts.append(len(words))
        words.append(0)
    words.pop()  # no step follows the last pad
    for at, (step, stall) in enumerate(zip(ordered, stalls, strict=True)):
        distance = starts[at + 1 + step.skips] - starts[at] - 1
        words[starts[at]] = _word(_branching(step, distance), stall, scoreboard)
    cuts = [at for at, before in enumerate(passed) if at and before > passed[at - 1]]
    bounds = [0, *(starts[at] - len(pads[at]) for at in cuts), len(words)]
    behind = [0, *(passed[at] for at in cuts)]
    return [(n, words[a:b]) for n, a, b in zip(behind, bounds[:-1], bounds[1:], strict=True)]


def _with_waits(steps: Sequence[Step], scoreboard: int) -> list[Step]:
    """Add scoreboard waits; behind the last step, all results are written."""
    ordered: list[Step] = []
    written: set[Resource] = set()
    kept: set[Resource] = set()
    for plain in steps:
        needed = written & (plain.reads | plain.writes) or kept & plain.writes
        step = plain.after(scoreboard) if needed or (plain.skips and written) else plain
        if step.waits & scoreboard:
            written, kept = set(), set()
        if step.time == NEVER and not step.left:
            written |= step.writes
        if step.time == NEVER or step.keeps:  # with its result, its operands have been read, too
            kept |= step.reads - {("P", step.guard)}  # the guard is read at once
        ordered.append(step)
    return [*ordered, NOP.after(scoreboard)] if written else ordered


def _times(
    steps: Sequence[Step], settled: str, cycles: Sequence[int], late: Mapping[Resource, int]
) -> tuple[list[int], list[list[int]], list[int]]:
    """Return each step's stall; the stalls of the NOPs before each, and behind the last; and how
    many instructions of the kernel precede each.
    """
    now = passed = 0
    registers = _Registers(late)
    stalls: list[int] = []
    pads: list[list[int]] = []
    before: list[int] = []
    clock = max((at for at, step in enumerate(steps) if _reads_clock(step)), default=0)
    for at, step in enumerate(steps):
        due = registers.due(step)
        while due > now and at > clock and passed < len(cycles):
            now += cycles[passed]
            passed += 1
        before.append(passed)
        pads.append(_hold(stalls, due - now))
        now = max(now, due)
        signals = step.time == NEVER or step.keeps
        stalls.append(max(step.stall, _SIGNAL_STALL if signals else 1))
        registers.issue(step, now)
        now += stalls[-1]
    now += sum(cycles[passed:])  # until then, the kernel names no register of the sequence
    pads.append(_hold(stalls, registers.last(settled) - now))
    return stalls, pads, before


class _Registers:
    """When the registers of a sequence are written and read, in cycles from its first step.

    Args:
        late: those that something before the sequence has yet to write.
    """

    def __init__(self, late: Mapping[Resource, int]) -> None:
        """Begin."""
        self.ready = dict(late)
        self._chained = dict(late)  # for readers on the uniform datapath
        self._read: dict[Resource, int] = {}  # when the uniform datapath has read a register

    def due(self, step: Step) -> int:
        """Return when a step may issue."""
        # At a branch, all results are awaited: code behind it must not depend on the path taken.
        used = self.ready.keys() if step.skips else step.reads | step.writes
        there = self._chained if step.uniform else self.ready
        due = max([there.get(resource, 0) for resource in used], default=0)
        if self._read:
            due = max([due, *[self._read.get(resource, 0) for resource in step.writes]])
        if (guard := ("P", step.guard)) in self.ready:
            due = max(due, self.ready[guard] + GUARD_LATER)
        return due

    def last(self, files: str) -> int:
        """Return when the last register of some files is written."""
        return max([cycle for (file, _), cycle in self.ready.items() if file in files], default=0)

    def issue(self, step: Step, now: int) -> None:
        """Note a step that issues."""
        if step.uniform or step.low & _OPCODE == _COUNTS:
            self._read |= {each: now + _READ for each in step.reads if each[0] in _UNIFORM}
        soon = min(step.time, CHAINED) if step.uniform else step.time
        for each in step.writes:
            self.ready[each], self._chained[each] = now + step.time, now + soon


def _hold(stalls: list[int], cycles: int) -> list[int]:
    """Lengthen the last step's stall; return the stalls of the NOPs that must follow it."""
    if cycles <= 0 or not stalls:
        return []
    room = min(cycles, _MOST_STALL - stalls[-1])
    stalls[-1] += room
    whole, rest = divmod(cycles - room, _MOST_STALL)
    return [_MOST_STALL] * whole + [rest] * bool(rest)


def _branching(step: Step, distance: int) -> Step:
    """Return a branch with its distance, in words; any other step as it is."""
    if not step.skips:
        return step
    halves, units = [step.low, step.high], distance * BYTES // step.far.unit
    for half, first, bits in step.far.parts:
        halves[half] |= (units & (1 << bits) - 1) << first
        units >>= bits
    return step._replace(low=halves[0], high=halves[1])


def _word(step: Step, stall: int, scoreboard: int) -> int:
    write = scoreboard if step.time == NEVER else _NO_SCOREBOARD
    read = scoreboard if step.keeps else _NO_SCOREBOARD
    patient = stall <= _PATIENT_STALL
    control = stall | patient << 4 | write << 5 | read << 8 | step.waits << 11
    guard = step.guard | step.inverted << 3
    return control << _CONTROL_AT | step.high << 64 | step.low & ~_GUARD | guard << 12


_LATE = 30
"""Assumed latency, in cycles, of an instruction whose end a scoreboard reports."""


def reordered(steps: Sequence[Step]) -> list[Step]:
    """Return the same steps in an order in which operands are ready when a step needs them.

    Each step still follows the steps whose results it reads or overwrites, and the readers of what
    it overwrites. Waits keep their position among all steps, and stores among stores. There must be
    no branches among the steps: these count the steps that they skip.
    """
    made: list[Step] = []
    part: list[Step] = []
    for step in steps:
        if step.waits:
            made += [*_part(part), step]
            part = []
        else:
            part.append(step)
    return [*made, *_part(part)]


def _part(steps: Sequence[Step]) -> list[Step]:
    before = _needed(steps)
    length = _lengths(steps, before)
    left, now, due = [len(each) for each in before], 0, [0] * len(steps)
    behind: list[list[int]] = [[] for _ in steps]
    for at, some in enumerate(before):
        for each in some:
            behind[each].append(at)
    ready, order = {at for at, count in enumerate(left) if not count}, list[Step]()
    while ready:
        at = min(ready, key=lambda each: (max(due[each], now), -length[each], each))
        ready.discard(at)
        order.append(steps[at])
        now = max(now, due[at]) + 1
        for each in behind[at]:
            due[each] = max(due[each], _due(steps[each], steps[at], now - 1 + _time(steps[at])))
            left[each] -= 1
            if not left[each]:
                ready.add(each)
    return order


def _needed(steps: Sequence[Step]) -> list[set[int]]:
    """Return the steps that must come before each, by its registers; a store writes memory, too."""
    every = frozenset[Resource]().union(*[step.reads | step.writes for step in steps])
    bits = {each: 2 << number for number, each in enumerate(every)}  # memory is bit 0

    def mask(some: Iterable[Resource]) -> int:
        return sum([bits[each] for each in some])

    reads = [mask(step.reads) for step in steps]
    writes = [mask(step.writes) | step.keeps for step in steps]
    return [
        {n for n in range(at) if writes[n] & (reads[at] | writes[at]) or reads[n] & writes[at]}
        for at in range(len(steps))
    ]


def _lengths(steps: Sequence[Step], before: Sequence[set[int]]) -> list[int]:
    """Return the critical path of each step: cycles from its issue to the end of all dependants."""
    length = [_time(step) for step in steps]
    for at in range(len(steps) - 1, -1, -1):
        for each in before[at]:
            length[each] = max(length[each], _time(steps[each]) + length[at])
    return length


def _due(step: Step, needed: Step, done: int) -> int:
    """Return when a step may issue behind another, whose operands are read at its issue."""
    if not needed.writes & (step.reads | step.writes):
        return 0
    return done + _later(step, needed)


def _later(step: Step, needed: Step) -> int:
    """Return how many cycles later than usual a step can read another's result."""
    if step.uniform and needed.uniform:
        return min(CHAINED - needed.time, 0)
    return GUARD_LATER if ("P", step.guard) in needed.writes else 0


def _time(step: Step) -> int:
    return _LATE if step.time == NEVER else step.time
