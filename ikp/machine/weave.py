"""Records, woven into a kernel's code: where each stands, and with which registers.

A record is made in registers that nobody needs where it stands. Its store reads them some time
after it has issued, so they, and the scoreboard that tells, are the kernel's again only behind a
wait. That stands as far behind the store as can be: before the first instruction that would write
one of the registers or take the scoreboard, before the next record, or at the end of the block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ikp.core.abi import Language
from ikp.core.regions import region_id
from ikp.errors import PatchError
from ikp.machine import forms, sequences
from ikp.machine.assembler import NOP, Step, assemble
from ikp.machine.places import Place, marks
from ikp.machine.resources import span
from ikp.machine.room import Room, Spare
from ikp.machine.sass import Instruction
from ikp.machine.sequences import Frame, Scratch
from ikp.machine.shift import Before
from ikp.machine.stretches import Point


@dataclass(frozen=True, slots=True, order=True)
class _Site:
    """Where code is put: before an instruction; ``fallen``: for who comes from the one before."""

    index: int
    rank: int  # 0 for those that fall, 1 for all

    @classmethod
    def of(cls, point: Point) -> _Site:
        return cls(point.index + 1, 0) if point.after else cls(point.index, 1)


@dataclass(slots=True)
class _Run:
    """What is put at one site."""

    scratch: Scratch
    steps: list[Step] = field(default_factory=list)
    stores: bool = False


@dataclass
class Weaver:
    """Puts records into one kernel.

    Args:
        room: what is free where.
        frame: what is kept for records throughout.
        places: what is recorded, from ``Places``.
    """

    room: Room
    frame: Frame
    places: list[Place]
    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    most: int | None = 1  # records that a warp makes; None where loops say how many
    _runs: dict[_Site, _Run] = field(default_factory=dict)
    _waits: dict[_Site, int] = field(default_factory=dict)  # first at a site: scoreboards' bits
    _late: dict[_Site, int] = field(default_factory=dict)  # last there

    def woven(self, name: str, language: Language) -> list[Before]:
        """Return what is put before which instruction.

        Args:
            name: the kernel's.
            language: what it was written in.

        Raises:
            PatchError: there is no room for what every kernel needs.
        """
        self.names = [name]
        self._ranges()
        entry = self._entry(region_id(name), language)
        code = self.room.liveness.flow.code.instructions
        leaving = [(at, each) for at, each in enumerate(code) if each.op == "EXIT"]
        exits = [self._exit(at, each) for at, each in leaving if not each.never_runs]
        for site, run in self._runs.items():
            if run.stores:
                self._wait_behind(site, run.scratch)
        return [entry, *self._written(), *exits]

    def _ranges(self) -> None:
        kept = _kept([each for each in self.places if each.end], self._for_starts)
        lost = {id(each) for each in self.places if each.end and not self._fits(each, kept)}
        for point, place, opens in marks([each for each in self.places if id(each) not in lost]):
            site = _Site.of(point)
            run = self._runs.get(site) or _Run(self._scratch(site))
            self._runs[site] = run
            uniform = kept[id(place)]
            assert uniform is not None  # noqa: S101 - for the type checker
            if opens:
                register = run.scratch.first + 1
                run.steps += [*sequences.start(register), *sequences.keep(uniform, register)]
            else:
                tag = sequences.range_tag(region_id(place.name))
                made = sequences.end(self.frame, run.scratch, tag, uniform)
                run.steps += [made[0].after(place.waits), *made[1:]]
                run.stores = True
                self._count(point)
                self.names.append(place.name)
        self.names = list(dict.fromkeys(self.names))

    def _count(self, point: Point) -> None:
        """Count a record that is made at a point."""
        flow = self.room.liveness.flow
        again = any(flow.graph.block(point.index) in body for body in flow.bodies.values())
        self.most = None if again or self.most is None else self.most + 1

    @property
    def _for_starts(self) -> list[int]:
        """Uniform registers that nobody else uses."""
        return [each for each in self.room.unused_uniform if each not in self.frame.all]

    def _fits(self, place: Place, kept: dict[int, int | None]) -> bool:
        """Return whether there is room for a place's records; note where there is not."""
        assert place.end is not None  # noqa: S101 - for the type checker
        why = "no uniform register is" if kept[id(place)] is None else ""
        for point in (place.start, place.end):
            why = why or self._lacking(self._spare(_Site.of(point)))
        if why:
            self.notes.append(f"{place.name} is not recorded: {why} free there.")
        return not why

    @staticmethod
    def _lacking(spare: Spare) -> str:
        if not _records(spare):
            return f"only {len(spare.registers)} registers are"
        if not spare.predicates:
            return "no predicate is"
        return "" if spare.scoreboards else "no scoreboard is"

    def _spare(self, site: _Site) -> Spare:
        return self.room.at(min(site.index, len(self.room.free) - 1))

    def _scratch(self, site: _Site) -> Scratch:
        """Return the registers and the scoreboard that the kernel leaves alone for longest."""
        spare = self._spare(site)
        board = max(spare.scoreboards, key=lambda each: (self._reach(site.index, 0, each), -each))
        first, last = max(
            _records(spare), key=lambda e: (self._reach(site.index, _members(*e), board), e)
        )
        taken = _members(first, last)
        address = max(
            (each for each in spare.pairs if not taken & span(each, 2)),
            key=lambda each: (self._reach(site.index, span(each, 2), board), each),
        )
        return Scratch(first, last, address, spare.predicates[-1], board)

    def _reach(self, index: int, registers: int, board: int) -> int:
        """Return how many instructions pass until the kernel needs one of these."""
        end = self._block_end(index)
        for at in range(index, end):
            if self._needs(at, registers, board):
                return at - index
        return end - index

    def _block_end(self, index: int) -> int:
        graph = self.room.liveness.flow.graph
        return graph.blocks[graph.block(index)].end

    def _needs(self, at: int, registers: int, board: int) -> bool:
        controls = self.room.liveness.flow.code.controls
        taken = board in (controls.writes[at], controls.reads[at])
        return taken or bool(self.room.liveness.effects[at].writes & registers)

    def _wait_behind(self, site: _Site, scratch: Scratch) -> None:
        """Have a run's last store waited for before the kernel needs what it reads."""
        registers = _members(scratch.first, scratch.last) | span(scratch.address, 2)
        end = self._block_end(site.index)
        jumps = self.room.liveness.flow.graph.jumps.leaving
        later = sorted(each for each in self._runs if each > site)
        for at in range(site.index, end):
            met = next((each for each in later if each.index == at), None)
            last = at in jumps or at == end - 1
            if met is not None or last or self._needs(at, registers, scratch.scoreboard):
                there = met or _Site(at, 1)
                waits = self._late if there == site else self._waits
                waits[there] = waits.get(there, 0) | scratch.busy
                return

    def _written(self) -> Iterable[Before]:
        for site in sorted({*self._runs, *self._waits}):
            run = self._runs.get(site)
            early, late = self._waits.get(site, 0), self._late.get(site, 0)
            steps = [NOP.after(early)] if early else []
            steps += run.steps if run else []
            steps += [NOP.after(late)] if late else []
            board = run.scratch.scoreboard if run else 0
            yield Before(site.index, tuple(assemble(steps, board, "RP")), site.rank == 0)

    def _entry(self, whole: int, language: Language) -> Before:
        if self.room.allowed[0] < sequences.ENTRY_REGISTERS:
            raise PatchError("it has too few registers for what records need at its entry.")
        steps = sequences.entry(self.frame, _ENTRY_BOARD, whole, language)
        return Before(0, tuple(assemble(steps, _ENTRY_BOARD)), skipped=True)

    def _exit(self, at: int, instruction: Instruction) -> Before:
        """Return what stands before an EXIT. Where stores read all that is free, it waits."""
        waits, spare = 0, self.room.at(at)
        rows = _rows(spare)
        if not rows:
            waits, spare = self.room.flight.held(at), self.room.waited(at)
            rows = _rows(spare)
        if not rows:
            raise PatchError(
                f"no registers are free for records where the kernel ends, at instruction {at}."
            )
        (address, *quads), board = rows, spare.scoreboards[-1]
        steps = sequences.leave(self.frame, quads, address, spare.predicates[-1])
        steps[0] = steps[0].after(waits)
        # Those that an EXIT lets go on use these registers: all stores must have read them.
        steps += [NOP.after(1 << board)] if instruction.guard else []
        steps = [*_unless_staying(instruction, len(steps)), *steps]
        return Before(at, tuple(assemble(steps, board)))


_ENTRY_BOARD = 0


def _records(spare: Spare) -> list[tuple[int, int]]:
    """Return where a record can be made, and leave a pair for its address: in a row if possible."""
    free = set(spare.registers)
    rows = [(pair, pair + 2) for pair in spare.pairs if pair % 4 == 0 and pair + 2 in free]
    apart = [(p, each) for p in spare.pairs[:1] for each in spare.registers if each // 2 != p // 2]
    for choices in (rows, apart):
        fit = [
            words
            for words in choices
            if any(not _members(*words) & span(pair, 2) for pair in spare.pairs)
        ]
        if fit:
            return fit
    return []


def _rows(spare: Spare) -> list[int]:
    """Return a pair for an address and up to four rows of four, each its first; or nothing."""
    if not (spare.predicates and spare.scoreboards):
        return []
    quads = list(spare.quads[-5:])
    pair = next((each for each in spare.pairs[::-1] if each // 4 * 4 not in quads), None)
    if pair is None and quads:
        pair = quads.pop(0)
    return [pair, *quads[-4:]] if pair is not None and quads else []


def _kept(places: list[Place], free: list[int]) -> dict[int, int | None]:
    """Return a uniform register for each place's start: nested places have different ones."""
    made: dict[int, int | None] = {}
    around: list[Place] = []
    for _, place, opens in marks(places):
        if opens:
            made[id(place)] = free[len(around)] if len(around) < len(free) else None
            around.append(place)
        else:
            around.remove(place)
    return made


def _members(first: int, last: int) -> int:
    """Return the registers that a record's words are in, as bits."""
    row = first % 4 == 0 and last == first + 2  # stored at once, with what stands behind it
    return span(first, 4) if row else span(first, 2) | span(last, 1)


def _unless_staying(leaving: Instruction, steps: int) -> list[Step]:
    """Have threads that an EXIT lets go on skip so many steps."""
    guard = leaving.guard
    if not guard:
        return []
    if guard.lstrip("!")[0] != "P":
        raise PatchError(f"an EXIT has the guard {guard}, which is not known here.")
    return [forms.skip(steps).when(int(guard[-1]), holds=guard.startswith("!"))]
