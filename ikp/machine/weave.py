"""Records, woven into a kernel's code: where each stands, and with which registers.

A record is made in registers that nobody needs where it stands. Its store reads them some time
after it has issued, so they, and the scoreboard that tells, are the kernel's again only behind a
wait. That stands as far behind the store as can be: before the first instruction that would write
one of the registers or take the scoreboard, before the next record, or at the end of the block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ikp.core.abi import Language
from ikp.core.regions import region_id
from ikp.errors import PatchError
from ikp.machine import sequences
from ikp.machine.assembler import NOP, Step, assemble
from ikp.machine.forms import Forms
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
        registers: how many registers the code may use.
        places: what is recorded, from ``Places``.
    """

    room: Room
    frame: Frame
    registers: int
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
        entry = self._entry(language)
        exits = list(self._exits(sequences.range_tag(region_id(name))))
        for site, run in self._runs.items():
            if run.stores:
                words = _members(run.scratch.first, run.scratch.last)
                self._wait_behind(site, run.scratch, words)
        return [entry, *self._written(), *exits]

    def _ranges(self) -> None:
        kept = _kept([each for each in self.places if each.end], self._first_kept)
        lost = {id(each) for each in self.places if each.end and not self._fits(each, kept)}
        for point, place, opens in marks([each for each in self.places if id(each) not in lost]):
            site = _Site.of(point)
            run = self._runs.setdefault(site, _Run(self._scratch(site)))
            uniform = kept[id(place)]
            if opens:
                register = run.scratch.first + 1
                run.steps += [
                    *sequences.start(self.frame, register),
                    *sequences.keep(self.frame, uniform, register),
                ]
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
    def _first_kept(self) -> int:
        return self.frame.uniform + sequences.UNIFORMS

    def _fits(self, place: Place, kept: dict[int, int]) -> bool:
        """Return whether there is room for a place's records; note where there is not."""
        assert place.end is not None  # noqa: S101 - for the type checker
        why = "no uniform register is" if kept[id(place)] >= self.frame.chip.uniforms else ""
        for point in (place.start, place.end):
            why = why or self._lacking(self._spare(_Site.of(point)))
        if why:
            self.notes.append(f"{place.name} is not recorded: {why} free there.")
        return not why

    @staticmethod
    def _lacking(spare: Spare) -> str:
        if not spare.pairs or len(spare.registers) < 3:
            return f"only {len(spare.registers)} registers are"
        if not spare.predicates:
            return "no predicate is"
        return "" if spare.scoreboards else "no scoreboard is"

    def _spare(self, site: _Site) -> Spare:
        """Return what is free at a site, the cursor aside."""
        count = len(self.room.free)
        spare = self.room.at(min(site.index, count - 1), self.registers)
        cursor = self.frame.cursor
        return replace(
            spare,
            registers=tuple(each for each in spare.registers if each // 2 != cursor // 2),
            pairs=tuple(each for each in spare.pairs if each != cursor),
            quads=tuple(each for each in spare.quads if each // 4 != cursor // 4),
        )

    def _scratch(self, site: _Site) -> Scratch:
        """Return the registers and the scoreboard that the kernel leaves alone for longest."""
        spare = self._spare(site)
        free = set(spare.registers)
        rows = [(pair, pair + 2) for pair in spare.pairs if pair % 4 == 0 and pair + 2 in free]
        pair = spare.pairs[0]
        apart = [(pair, each) for each in spare.registers if each // 2 != pair // 2]
        _, board, first, last = max(
            (self._reach(site.index, _members(*words), board), -board, *words)
            for words in rows or apart
            for board in spare.scoreboards
        )
        return Scratch(first, last, spare.predicates[-1], -board)

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

    def _wait_behind(self, site: _Site, scratch: Scratch, registers: int) -> None:
        """Have a run's last store waited for before the kernel needs what it reads."""
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

    def _entry(self, language: Language) -> Before:
        spare, own = self._spare(_Site(0, 0)), set(range(sequences.SCRATCH))
        quads = [each for each in spare.quads if not own & set(range(each, each + 4))]
        pairs = [each for each in spare.pairs if not own & {each, each + 1}]
        boards = spare.scoreboards
        choices = [
            (self._reach(0, span(quad, 4) | span(pair, 2), board), quad, pair, board)
            for quad in quads
            for pair in pairs
            if pair // 4 != quad // 4
            for board in boards
        ]
        if not choices:
            raise PatchError("no registers are free for records at the kernel's entry.")
        _, quad, pair, board = max(choices)
        scratch = Scratch(quad, quad + 2, 3, board, pair)
        steps = sequences.entry(self.frame, scratch, language)
        self._wait_behind(_Site(0, 0), scratch, span(scratch.quad, 4) | span(scratch.address, 2))
        return Before(0, tuple(assemble(steps, board)), skipped=True)

    def _exits(self, tag: int) -> Iterable[Before]:
        for at, instruction in enumerate(self.room.liveness.flow.code.instructions):
            if instruction.op != "EXIT" or instruction.never_runs:
                continue
            spare = self._spare(_Site(at, 1))
            quads = spare.quads
            pairs = [each for each in spare.pairs if quads and each // 4 != quads[-1] // 4]
            if not (quads and pairs and spare.predicates and spare.scoreboards):
                raise PatchError(
                    f"no registers are free for records where the kernel ends, at instruction {at}."
                )
            scratch = Scratch(
                *(quads[-1], quads[-1] + 2, spare.predicates[-1], spare.scoreboards[-1], pairs[-1])
            )
            steps = sequences.leave(self.frame, scratch, tag)
            # Those that an EXIT lets go on use these registers: all stores must have read them.
            steps += [NOP.after(scratch.busy)] if instruction.guard else []
            steps = [*_unless_staying(self.frame.chip.forms, instruction, len(steps)), *steps]
            yield Before(at, tuple(assemble(steps, scratch.scoreboard)))


def _kept(places: list[Place], first: int) -> dict[int, int]:
    """Return a uniform register for each place's start: nested places have different ones."""
    made: dict[int, int] = {}
    around: list[Place] = []
    for _, place, opens in marks(places):
        if opens:
            made[id(place)] = first + len(around)
            around.append(place)
        else:
            around.remove(place)
    return made


def _members(first: int, last: int) -> int:
    """Return the registers that a record is made in, as bits."""
    row = first % 4 == 0 and last == first + 2  # stored at once, with what stands behind it
    return span(first, 4) if row else span(first, 2) | span(last, 1)


def _unless_staying(forms: Forms, leaving: Instruction, steps: int) -> list[Step]:
    """Have threads that an EXIT lets go on skip so many steps."""
    guard = leaving.guard
    if not guard:
        return []
    if guard.lstrip("!")[0] != "P":
        raise PatchError(f"an EXIT has the guard {guard}, which is not known here.")
    return [forms.skip(steps).when(int(guard[-1]), holds=guard.startswith("!"))]
