"""Records, woven into a kernel's code: where each stands, and with which registers.

A record is made in registers that nobody needs where it stands. Its store reads them some time
after it has issued, so they, and the scoreboard that tells, are the kernel's again only behind a
wait. That stands as far behind the store as can be: before the first instruction that would write
one of the registers or take the scoreboard, before the next record, or at the end of the block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ikp.core.abi import Language
from ikp.core.regions import region_id
from ikp.errors import PatchError
from ikp.machine import forms, near, own_frame, range_code, sequences
from ikp.machine.assembler import NOP, Step, assemble, spread
from ikp.machine.chips import HOPPER, Chip
from ikp.machine.choosing import Chooser, rows_of, used, words_of
from ikp.machine.control import SCOREBOARDS
from ikp.machine.entering import Entrance
from ikp.machine.filling import fillers
from ikp.machine.homes import Home, homes
from ikp.machine.insert import OnEdge
from ikp.machine.keeping import Frame, Scratch
from ikp.machine.lent_pair import Lender, lent
from ikp.machine.piecemeal import leave_by_words
from ikp.machine.places import Place, marks
from ikp.machine.resources import bit
from ikp.machine.room import Room, Spare
from ikp.machine.sass import Instruction
from ikp.machine.shift import Before
from ikp.machine.sites import TAKEN, Run, Site
from ikp.machine.stretches import Point, Regions


class NoRoomError(PatchError):
    """A kernel has no registers for what every kernel needs: with more of them, it has."""


@dataclass
class Weaver:
    """Puts records into one kernel.

    Args:
        room: what is free where.
        frame: what is kept for records throughout.
        places: what is recorded, from ``Places``.
        full: whether every warp is known to leave with all its threads, if it can at one place.
        chip: what the kernel is for.
    """

    room: Room
    frame: Frame
    places: list[Place]
    full: bool = False
    chip: Chip = HOPPER
    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    most: int | None = 0  # records that a warp makes; None where loops say how many
    _runs: dict[Site, Run] = field(default_factory=dict)
    _waits: dict[Site, int] = field(default_factory=dict)  # first at a site: scoreboards' bits
    _late: dict[Site, int] = field(default_factory=dict)  # last there
    _over: dict[Site, int] = field(default_factory=dict)  # where what a run uses is needed again
    _chosen: dict[tuple[Site, bool], Scratch | str] = field(default_factory=dict)

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
        leaving = [
            (at, e) for at, e in enumerate(self._code) if e.op == "EXIT" and not e.never_runs
        ]
        alone = self.full and len(leaving) == 1 and not leaving[0][1].guard
        exits = [self._exit(at, each, alone) for at, each in leaving]
        for site, run in self._runs.items():
            if run.stores and site.rank != TAKEN:
                self._wait_behind(site, run.scratch)
        return [*entry, *self._written(), *self._on_leaving(), *exits]

    def on_edges(self) -> list[OnEdge]:
        """Return what is run on the ways that jumps lead, once ``woven`` has chosen it all."""
        return [
            OnEdge(site.index, self._apart(run))
            for site, run in sorted(self._runs.items())
            if site.rank == TAKEN and self._code[site.index].op != "EXIT"
        ]

    def _on_leaving(self) -> list[Before]:
        """Return what those run alone whom an EXIT lets leave a loop."""
        return [
            Before(site.index, self._apart(run, site.index))
            for site, run in sorted(self._runs.items())
            if site.rank == TAKEN and self._code[site.index].op == "EXIT"
        ]

    def _apart(self, run: Run, leaving: int | None = None) -> tuple[int, ...]:
        """Return a run that stands on a way of its own: its last store is waited for there.

        Args:
            run: it.
            leaving: the EXIT by which those leave that run it, if they do.
        """
        steps = [*self._lent(run.steps, run.scratch.pair), NOP.after(run.scratch.busy)]
        if leaving is not None:
            steps = [*self._unless_staying(leaving, len(steps)), *steps]
        return self._assembled(steps, run.scratch.scoreboard, "RP")

    @property
    def _code(self) -> Sequence[Instruction]:
        return self.room.liveness.flow.code.instructions

    def _ranges(self) -> None:
        ended = [each for each in self.places if each.ends]
        kept = homes(ended, self._for_starts, self.room)
        chosen = {id(each) for each in self.places if each.ends and self._fits(each, kept)}
        found = [each for each in self.places if id(each) in chosen]
        stores = {Site.of(end) for each in found for end in each.ends}
        for point, place, opens in marks(found):
            site = Site.of(point)
            if site not in self._runs:
                self._runs[site] = Run(self._scratch(site, site in stores), stores=site in stores)
            run, home = self._runs[site], kept[id(place)]
            assert home is not None  # noqa: S101 - for the type checker
            tag = range_code.range_tag(region_id(place.name))
            alone = place.ends == (place.start,) and not run.scratch.piecemeal
            if alone and opens:
                run.steps += range_code.wait(self.frame, run.scratch, tag, place.waits)
            elif opens and home.own:
                run.steps += range_code.start(home.number)
                run.kept |= home.written
            elif opens:
                register = run.scratch.last
                run.steps += [*range_code.start(register), *range_code.keep(home.number, register)]
            elif not alone:
                made = range_code.end(self.frame, run.scratch, tag, home.number, own=home.own)
                run.steps += [made[0].after(place.waits), *made[1:]]
                run.begun |= home.written
            if not opens:
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

    def _fits(self, place: Place, kept: dict[int, Home | None]) -> bool:
        """Return whether there is room for a place's records; note where there is not."""
        why = "no register for its start is" if kept[id(place)] is None else ""
        for point, stores in ((place.start, False), *((end, True) for end in place.ends)):
            made = self._choices(Site.of(point), stores)
            why = why or (made if isinstance(made, str) else "")
        if why:
            self.notes.append(f"{place.name} is not recorded: {why} free there.")
        return not why

    def _scratch(self, site: Site, stores: bool) -> Scratch:
        made = self._choices(site, stores)
        assert not isinstance(made, str)  # noqa: S101 - for the type checker
        return made

    def _choices(self, site: Site, stores: bool) -> Scratch | str:
        if (site, stores) not in self._chosen:
            self._chosen[site, stores] = self._choose(site, stores)
        return self._chosen[site, stores]

    def _choose(self, site: Site, stores: bool) -> Scratch | str:
        if not stores:
            return self._chooser.for_start(site.index)
        if site.rank == TAKEN:  # nothing may be shared with what stands where it leads
            index = self._regions.lands(Point(site.index, taken=True))
            return self._chooser.for_record(index, alone=False)
        return self._chooser.for_record(site.index, self._alone(site))

    def _alone(self, site: Site) -> bool:
        """Whether nothing else is put between a record and the instruction behind it."""
        behind = not site.rank and Site(site.index, 1) in self._begun
        return self._ends[site] == 1 and not behind

    @cached_property
    def _regions(self) -> Regions:
        return Regions(self.room.liveness.flow)

    @cached_property
    def _ends(self) -> Counter[Site]:
        """How many places end at a site."""
        return Counter(Site.of(end) for each in self.places for end in each.ends)

    @cached_property
    def _begun(self) -> frozenset[Site]:
        """Where places begin or end."""
        points = (p for each in self.places if each.ends for p in (each.start, *each.ends))
        return frozenset(map(Site.of, points))

    @cached_property
    def _chooser(self) -> Chooser:
        ours = frozenset(site.index for site in self._begun)
        return Chooser(self.room, ours, self.chip.late, self._lender)

    @cached_property
    def _lender(self) -> Lender | None:
        """What finds a pair for global memory; None where one is kept."""
        return Lender(self.room, self._regions.others) if self.frame.lends else None

    def _lent(self, steps: list[Step], pair: int | None) -> list[Step]:
        return steps if pair is None else lent(steps, pair, self.frame.places)

    def _wait_behind(self, site: Site, scratch: Scratch) -> None:
        """Have a run's last store waited for before the kernel needs what it reads."""
        registers, board = used(scratch), scratch.scoreboard
        end, choose = self._chooser.end(site.index), self._chooser
        jumps = self.room.liveness.flow.graph.jumps.leaving
        ahead = (each for each in self._runs if each > site and each.rank != TAKEN)
        later = sorted(each for each in ahead if self._meets(each, registers))
        for at in range(site.index, end):
            met = next((each for each in later if each.index == at), None)
            self._over[site] = at
            if met is None and choose.waits(at, board):
                return
            last = at in jumps or at == end - 1
            if met is not None or last or choose.needs(at, registers, board):
                there = met or Site(at, 1)
                waits = self._late if there == site else self._waits
                waits[there] = waits.get(there, 0) | scratch.busy
                return

    def _meets(self, site: Site, registers: int) -> bool:
        """Return whether a run may need a scoreboard, or writes one of these registers."""
        run = self._runs[site]
        return run.stores or bool(registers & (run.kept | 1 << run.scratch.last))

    def _written(self) -> Iterable[Before]:
        inline = {each for each in self._runs if each.rank != TAKEN}
        sites = sorted(inline | set(self._waits))
        for at, site in enumerate(sites):
            run = self._runs.get(site)
            early, late = self._waits.get(site, 0), self._late.get(site, 0)
            first, *rest = self._lent(run.steps, run.scratch.pair) if run else [NOP]
            steps = [first.after(early), *rest, *([NOP.after(late)] if late else [])]
            board = run.scratch.scoreboard if run else 0
            cycles = self._fillers(site, run, sites[at + 1 :]) if run and not late else []
            settled = "" if self._light(site) else "RP"
            for passed, words in spread(self._fitted(steps), board, cycles, settled):
                yield Before(site.index + passed, tuple(words), site.rank == 0 and not passed)

    def _light(self, site: Site, needed: int = 0) -> bool:
        """Whether a site has nothing but clocks, kept in registers that are not ``needed``."""
        run = self._runs.get(site)
        if run is None or site in self._waits or site in self._late:
            return False
        return run.clocks_alone and not run.kept & needed

    def _fillers(self, site: Site, run: Run, later: Sequence[Site]) -> list[int]:
        """Return how long the instructions take that may stand in a run; see ``filling``."""
        scratch, graph = run.scratch, self.room.liveness.flow.graph
        block = graph.blocks[graph.block(site.index)]
        falls = not site.rank and site.index == block.first  # what follows is others', too
        if falls or self.chip.late or scratch.pair is not None:
            return []
        next_ = next((each.index for each in later if not self._light(each, run.begun)), block.end)
        ends = (self._over.get(site, block.end), next_, block.end)
        return fillers(self.room, site.index, min(ends) - 1, scratch, run.stores, run.begun)

    def _entry(self, whole: int, language: Language) -> list[Before]:
        first = min((site.index for site in self._runs), default=len(self.room.free))
        entrance = Entrance(self.room, self.frame, self.chip, self._lender)
        made = entrance.made(first, whole, language)
        if made is None:
            raise NoRoomError("it has too few registers for what records need at its entry.")
        return made

    def _assembled(self, steps: list[Step], board: int, settled: str = "RUP") -> tuple[int, ...]:
        return tuple(assemble(self._fitted(steps), board, settled))

    def _fitted(self, steps: list[Step]) -> list[Step]:
        return self.chip.fitted(own_frame.fitted(steps, self.frame.own))

    def _exit(self, at: int, instruction: Instruction, alone: bool) -> Before:
        """Return what stands before an EXIT. Where stores read all that is free, it waits.

        Args:
            at: where it is.
            instruction: it.
            alone: whether all threads of every warp leave there.
        """
        waits, spare = self._free_to_leave(at)
        rows, words = rows_of(spare), words_of(spare)
        if not (rows or words):
            raise NoRoomError(
                f"no registers are free for records where the kernel ends, at instruction {at}: "
                "its last stores may still read them."
            )
        address, *quads = rows or words
        board, predicates = spare.scoreboards[-1], spare.predicates[-2:]
        if not rows:
            steps = leave_by_words(self.frame, quads, address, predicates[-1])
        elif alone and self.frame.entered and len(predicates) == 2:
            leave = near.leave_together if self.frame.near else sequences.leave_together
            steps = leave(self.frame, quads[-1], address, predicates)
        elif self.frame.near:
            steps = near.leave(self.frame, quads, predicates[-1])
        else:
            steps = sequences.leave(self.frame, quads, address, predicates[-1])
        steps = self._lent(steps, self._lender.to_leave(at, spare) if self._lender else None)
        steps[0] = steps[0].after(waits)
        # Those that an EXIT lets go on use these registers: all stores must have read them.
        steps += [NOP.after(1 << board)] if instruction.guard else []
        steps = [*self._unless_staying(at, len(steps)), *steps]
        return Before(at, self._assembled(steps, board))

    def _unless_staying(self, at: int, steps: int) -> list[Step]:
        """Have threads that an EXIT lets go on skip so many steps, once it is known who does."""
        guard = self._code[at].guard
        if not guard:
            return []
        if guard.lstrip("!")[0] != "P":
            raise PatchError(f"an EXIT has the guard {guard}, which is not known here.")
        held = self.room.flight.states[at][:SCOREBOARDS]
        late = sum(1 << n for n, each in enumerate(held) if each >> bit(guard.lstrip("!")) & 1)
        return [forms.skip(steps).when(int(guard[-1]), holds=guard.startswith("!")).after(late)]

    def _free_to_leave(self, at: int) -> tuple[int, Spare]:
        """Return what is free before an EXIT, and the scoreboards to be waited for there first."""
        held = self.room.flight.held(at)
        ways = ((0, self.room.at), (held, self.room.waited), (held, self.room.left))
        made = [(waits, free(at)) for waits, free in ways]
        return next(
            (each for enough in (rows_of, words_of) for each in made if enough(each[1])), made[0]
        )
