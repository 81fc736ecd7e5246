"""Records, woven into a kernel's code: where each stands, and with which registers.

A record is made in registers that nobody needs where it stands. Its store reads them some time
after it has issued, so they, and the scoreboard that tells, are the kernel's again only behind a
wait. That stands as far behind the store as can be: before the first instruction that would write
one of the registers or take the scoreboard, before the next record, or at the end of the block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ikp.core.abi import Language
from ikp.core.regions import region_id
from ikp.machine import own_frame, range_code
from ikp.machine.assembler import NOP, Step, assemble, spread
from ikp.machine.chips import HOPPER, Chip
from ikp.machine.choosing import Chooser, used
from ikp.machine.entering import Entrance
from ikp.machine.exits import NoRoomError, leaving, unless_staying
from ikp.machine.filling import fillers
from ikp.machine.gathering import Gatherer
from ikp.machine.homes import Home, homes, in_place
from ikp.machine.insert import OnEdge
from ikp.machine.keeping import Frame, Gathered, Scratch
from ikp.machine.launch_header import Told
from ikp.machine.lent_pair import Lender, lent
from ikp.machine.places import Place, marks
from ikp.machine.room import Room
from ikp.machine.sass import Instruction
from ikp.machine.sharing import Batch, Batches, check_gathered, margin, planned
from ikp.machine.shift import Before
from ikp.machine.sites import TAKEN, Run, Site, written
from ikp.machine.stretches import Point, Regions


@dataclass
class Weaver:
    """Puts records into one kernel.

    Args:
        room: what is free where.
        frame: what is kept for records throughout.
        places: what is recorded, from ``Places``.
        full: whether every warp is known to leave with all its threads, if it can at one place.
        chip: what the kernel is for.
        regions: tells where all threads of a warp are; None where no records are to be gathered.
    """

    room: Room
    frame: Frame
    places: list[Place]
    full: bool = False
    chip: Chip = HOPPER
    regions: Regions | None = None
    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    most: int | None = 0  # records that a warp makes; None where loops say how many
    margin: int = 0  # how many it may write behind the last that it keeps
    _runs: dict[Site, Run] = field(default_factory=dict)
    _waits: dict[Site, int] = field(default_factory=dict)  # first at a site: scoreboards' bits
    _late: dict[Site, int] = field(default_factory=dict)  # last there
    _over: dict[Site, int] = field(default_factory=dict)  # where what a run uses is needed again
    _chosen: dict[tuple[Site, bool], Scratch | str] = field(default_factory=dict)
    _batches: dict[Site, Batch] = field(default_factory=dict)
    _leads: dict[Site, Batch] = field(default_factory=dict)

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
        exits = [(at, e) for at, e in enumerate(self._code) if e.op == "EXIT" and not e.never_runs]
        alone = self.full and len(exits) == 1 and not exits[0][1].guard
        left = [self._exit(at, each, alone) for at, each in exits]
        for site, run in self._runs.items():
            if run.stores and site.rank != TAKEN:
                self._wait_behind(site, run)
        return [*entry, *self._written(), *self._on_leaving(), *left]

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

    def _apart(self, run: Run, left: int | None = None) -> tuple[int, ...]:
        """Return a run that stands on a way of its own: its last store is waited for there.

        Args:
            run: it.
            left: the EXIT by which those leave that run it, if they do.
        """
        steps = [*self._lent(run), NOP.after(run.scratch.busy)]
        if left is not None:
            steps = [*unless_staying(self.room, left, len(steps)), *steps]
        return tuple(assemble(self._fitted(steps), run.scratch.scoreboard, "RP", run.late))

    @property
    def _code(self) -> Sequence[Instruction]:
        return self.room.liveness.flow.code.instructions

    def _ranges(self) -> None:
        ended = [each for each in self.places if each.ends]
        gatherer = Gatherer.of(self._ending, self.room, self._chooser, self.regions)
        kept = homes(ended, self._for_starts, self.room)
        self._share(gatherer)
        found = [each for each in ended if self._fits(each, kept)]
        stores = Counter(Site.of(end) for each in found for end in each.ends)
        check_gathered(self._batches.values(), self._ending, stores)
        begun, flow = {Site.of(each.start) for each in found}, self.room.liveness.flow
        scratches = {each: self._scratch(each, each in stores) for each in {*stores, *begun}}
        in_place(found, kept, scratches, self.room)
        parts, self._leads = planned(dict.fromkeys(self._batches.values()), stores, begun)
        for point, place, opens in marks(found):
            site = Site.of(point)
            if site not in self._runs:
                self._runs[site] = Run(self._scratch(site, site in stores), stores=site in stores)
            run, home = self._runs[site], kept[id(place)]
            assert home is not None  # noqa: S101 - for the type checker
            tag = range_code.range_tag(region_id(place.name))
            alone = place.ends == (place.start,) and not run.scratch.piecemeal
            if alone and opens:
                part = next(parts[site])
                run.steps += range_code.wait(self.frame, run.scratch, tag, place.waits, part)
            elif opens and home.own:
                run.steps += range_code.start(home.number)
                run.kept |= home.written
            elif opens:
                register = run.scratch.last
                run.steps += [*range_code.start(register), *range_code.keep(home.number, register)]
            elif not alone:
                kept_in, part = (home.number, home.own), next(parts[site])
                made = range_code.end(self.frame, run.scratch, tag, kept_in, part)
                run.steps += [made[0].after(place.waits), *made[1:]]
                run.begun |= home.written
                if range_code.stores_home(run.scratch, kept_in):
                    run.stored |= home.written
                run.late |= home.late(place.start.index, site.index, flow)
            if not opens:
                self._count(point)
                self.names.append(place.name)
        for site, batch in self._leads.items():
            scratch, records = next(iter(batch.scratches.values())), batch.records(stores)
            steps, run = range_code.led(self.frame, scratch, records), self._runs[site]
            run.steps, run.led = [*steps, *run.steps], len(steps)
        self.margin = margin(self._batches.values(), stores)
        self.names = list(dict.fromkeys(self.names))

    def _share(self, gatherer: Gatherer | None) -> None:
        """Have records of one block find out together where they are stored, where they can."""
        leads = not self.chip.late
        found = Batches(self._ending, self.room, self._chooser, leads, gatherer).found()
        if gatherer and any(isinstance(each.shared, Gathered) for each in found):
            self.frame = replace(self.frame, gathers=True, threads=gatherer.threads)
        for batch in found:
            self._chosen |= {(site, True): each for site, each in batch.scratches.items()}
            self._batches |= dict.fromkeys(batch.scratches, batch)

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
        return len(self._ending[site]) == 1 and not behind

    @cached_property
    def _regions(self) -> Regions:
        return Regions(self.room.liveness.flow)

    @cached_property
    def _ending(self) -> dict[Site, list[Place]]:
        """The places that end at each site."""
        found: dict[Site, list[Place]] = {}
        for place in self.places:
            for end in place.ends:
                found.setdefault(Site.of(end), []).append(place)
        return found

    @cached_property
    def _begun(self) -> frozenset[Site]:
        """Where places begin or end."""
        points = (p for each in self.places if each.ends for p in (each.start, *each.ends))
        return frozenset(map(Site.of, points))

    @cached_property
    def _chooser(self) -> Chooser:
        ours = frozenset(site.index for site in self._begun)
        return Chooser(self.room, ours, self.chip.late, self._lender, self.frame.near)

    @cached_property
    def _lender(self) -> Lender | None:
        """What finds a pair for global memory; None where one is kept."""
        return Lender(self.room, self._regions.others) if self.frame.lends else None

    def _lent(self, run: Run) -> list[Step]:
        return lent(run.steps, run.scratch.pair)

    def _wait_behind(self, site: Site, run: Run) -> None:
        """Have a run's last store waited for before the kernel needs what it reads."""
        registers, board = used(run.scratch) | run.stored, run.scratch.scoreboard
        if run.scratch.gathered is not None:
            if site != self._batches[site].last:
                return
            registers = run.scratch.gathered.stored
        end, choose = self._chooser.end(site.index), self._chooser
        jumps = self.room.liveness.flow.graph.jumps.leaving
        ahead = (each for each in self._runs if each > site and each.rank != TAKEN)
        later = sorted(each for each in ahead if self._meets(each, registers))
        for at in range(site.index, end):
            met = next((each for each in later if each.index == at), None)
            self._over[site] = at
            left = self._code[at].op == "EXIT"  # what is put there comes before it waits
            if met is None and not left and choose.waits(at, board):
                return
            last = at in jumps or at == end - 1
            if met is not None or last or choose.needs(at, registers, board):
                there = met or Site(at, 1)
                waits = self._late if there == site else self._waits
                waits[there] = waits.get(there, 0) | run.scratch.busy
                return

    def _meets(self, site: Site, registers: int) -> bool:
        """Return whether a run writes one of these registers."""
        batch = self._batches.get(site)
        shared = 0 if batch is None or site == batch.first else batch.shared.bits
        led = self._leads[site].shared.bits if site in self._leads else 0
        return bool(registers & (written(self._runs[site]) & ~shared | self._runs[site].kept | led))

    def _written(self) -> Iterable[Before]:
        inline = {each for each in self._runs if each.rank != TAKEN}
        sites = sorted(inline | set(self._waits))
        for at, site in enumerate(sites):
            run = self._runs.get(site)
            early, late = self._waits.get(site, 0), self._late.get(site, 0)
            first, *rest = self._lent(run) if run else [NOP]
            steps = [first.after(early), *rest, *([NOP.after(late)] if late else [])]
            board = run.scratch.scoreboard if run else 0
            cycles = self._fillers(site, run, sites[at + 1 :]) if run and not late else []
            settled, soon = (run.settled, run.late) if run else ("", {})
            for passed, words in spread(self._fitted(steps), board, cycles, settled, soon):
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
        batch = self._batches.get(site)
        held = batch.shared.bits if batch is not None and site != batch.last else 0
        stop = min(ends) - 1
        return fillers(self.room, site.index, stop, scratch, run.stores, run.begun, held)

    def _entry(self, whole: int, language: Language) -> list[Before]:
        first = min((site.index for site in self._runs), default=len(self.room.free))
        entrance = Entrance(self.room, self.frame, self._assembled, self._lender)
        made = entrance.made(first, Told(whole, language, self.margin))
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
        waits, board, steps = leaving(self.room, self.frame, at, alone, self._lender)
        steps[0] = steps[0].after(waits)
        # Those that an EXIT lets go on use these registers: all stores must have read them.
        steps += [NOP.after(1 << board)] if instruction.guard else []
        steps = [*unless_staying(self.room, at, len(steps)), *steps]
        return Before(at, self._assembled(steps, board))
