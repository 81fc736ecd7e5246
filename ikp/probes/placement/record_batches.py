"""Batches of records in a basic block: those that one store takes together, or that share an
address.

One store takes several records where all of the warp's threads come to them. From the first of them
to the last, three registers must be free, or up to six, but no predicate (``Gatherer``). Their code
is in ``range_code``.

Of a record's dozen instructions, eight compute which thread stores it, whether there is room, and
at which address. In a block all records are made or none, so these run once for several of them:
where a predicate and two registers are free until the last. Where the kernel needs all its
predicates, one that it does not name meanwhile is saved.

It takes a while until a predicate guards a store. So these instructions run before the first of the
ranges begins, if it begins in the same block: the code in the range takes that long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, repeat
from typing import Final

from ikp.errors import PatchError
from ikp.probes.code.range_code import ALONE, BatchPart
from ikp.probes.code.reserved_registers import Gathered, Scratch, Shared
from ikp.probes.placement.probe_sites import TAKEN, Site
from ikp.probes.placement.scratch_registers import Latest, ScratchChooser, used
from ikp.probes.points.probe_points import ProbeRegion
from ikp.probes.points.sese_regions import Regions
from ikp.sass.assembly.assembler import PT
from ikp.sass.assembly.forms import RZ
from ikp.sass.dataflow.free_registers import FreeRegisters, Spare, lone
from ikp.sass.disassembly.effects import P, R, members, span

MOST_GATHERED: Final = 8
"""The most records of one store: a thread's byte is one of eight."""
_FEW: Final = 4
"""Up to so many records, a mask of four bytes is enough."""
_WORTH: Final = 0.2
"""The share of stores that gathering must save: a kernel's other records then lie in cache lines of
each warp's own, which costs more."""
_THREADS: Final = 3
"""How many registers keep a thread's number and both masks."""
_WORDS: Final = 3
_LEAST: Final = 3
"""The least records of one store: with fewer, their common code takes longer than stores do."""


@dataclass(frozen=True)
class Gatherer:
    """Finds the gathered records of one kernel.

    Args:
        ends: the probe regions that end at each site.
        room: the free registers.
        chooser: chooses the other registers of each record.
        regions: knows where all threads of a warp are.
        threads: the registers of a thread's number and masks, if reserved: see ``Frame``.
    """

    ends: Mapping[Site, Sequence[ProbeRegion]]
    room: FreeRegisters
    chooser: ScratchChooser
    regions: Regions
    threads: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        ends: Mapping[Site, Sequence[ProbeRegion]],
        room: FreeRegisters,
        chooser: ScratchChooser,
        regions: Regions | None,
    ) -> Gatherer | None:
        """Return a gatherer, which reserves unused registers for each thread's number and masks;
        None without ``regions``, which know where all threads of a warp are.
        """
        if regions is None:
            return None
        left = room.unused_own
        some = len(left) >= _THREADS and sum(map(len, ends.values())) >= _LEAST
        threads = left[-_THREADS:] if some else ()
        room.reserve(R.first + each for each in threads)
        return cls(ends, room, chooser, regions, threads)

    def longest(self, sites: Sequence[Site]) -> tuple[Gathered, dict[Site, Scratch]] | None:
        """Return the registers of the most records for one store, from a block's first site on."""
        few = sum(len(self.ends[each]) for each in sites[:_LEAST]) < _LEAST  # each has one
        if few or self._block(sites[0]) in self.regions.lacking:
            return None
        best = None
        for count in range(1, len(sites) + 1):
            records = sum(len(self.ends[each]) for each in sites[:count])
            if records > MOST_GATHERED:
                break
            if records >= _LEAST:
                shared = self._shared(sites[:count], records)
                if shared is None:
                    break
                best = self._with(sites[:count], shared) or best
        return best

    def is_worth(self, gathered: Iterable[Collection[Site]]) -> bool:
        """Return whether gathering saves so many stores that it is worth the rows that others lose.

        Records in no loop count only where no loop has a record.
        """
        looped = {block for body in self.room.liveness.flow.bodies.values() for block in body}
        groups = [*gathered]
        some = {each for each in self.ends if self._block(each) in looped} or {*self.ends}
        inside = [group for group in groups if some.issuperset(group)]
        records = self._count(chain.from_iterable(inside))
        return bool(some) and records - len(inside) > self._count(some) * _WORTH

    def _count(self, sites: Iterable[Site]) -> int:
        """Return how many records the probes of some sites make."""
        return sum(len(self.ends[each]) for each in sites)

    def _block(self, site: Site) -> int:
        last = len(self.room.free) - 1
        return self.room.liveness.flow.graph.block(min(site.index, last))

    def _with(
        self, sites: Sequence[Site], shared: Gathered
    ) -> tuple[Gathered, dict[Site, Scratch]] | None:
        made: dict[Site, Scratch] = {}
        for site in sites:
            *_, start, mask, last = (RZ, RZ, RZ, *self.chooser.others(site.index, shared.bits, 3))
            waits = any(each.ends == (each.start,) for each in self.ends[site])
            if RZ in ((start, mask) if waits else (mask,)):
                return None
            board, apart = shared.board or 0, start if waits else mask
            made[site] = Scratch(mask, last, 0, PT, board, apart=apart, near=True, gathered=shared)
        final = self._storing(sites, made[sites[-1]], shared)
        if final is None or final.gathered is None:
            return None
        made = {site: replace(each, gathered=final.gathered) for site, each in made.items()}
        return final.gathered, made | {sites[-1]: final}

    def _storing(self, sites: Sequence[Site], final: Scratch, shared: Gathered) -> Scratch | None:
        """Return the registers of the last record, whose probe stores all of them."""
        index = sites[-1].index
        guard, board = self.chooser.guard(index), self.chooser.board(index)
        if guard is None or board is None:
            return None
        if shared.board is not None and self._reads(sites, early=shared.early) == sites[-1]:
            board = shared.board  # a probe has one scoreboard
            if board not in self.room.at(index).scoreboards:
                return None
        (predicate, needed), saved = guard, shared.masks[0]  # no record needs that mask by then
        if shared.board is None:
            *_, saved, number = (RZ, RZ, *self.chooser.others(index, shared.bits | used(final), 2))
            if number == RZ or (needed and saved == RZ):
                return None
            shared = replace(shared, number=number)
        return replace(
            final,
            predicate=predicate,
            saved=saved if needed else None,
            scoreboard=board,
            gathered=shared,
        )

    def _reads(self, sites: Sequence[Site], *, early: bool) -> Site:
        """Return the site where lane ids are read: early, or when they are needed."""
        return sites[0] if early or len(self.ends[sites[0]]) > 1 else sites[1]

    def _shared(self, sites: Sequence[Site], records: int) -> Gathered | None:
        first, last = sites[0].index, sites[-1].index
        named = self.room.liveness.named(range(first, last))
        spare = self.room.through(range(first, last + 1))
        free = [each for each in spare.registers if not named >> R.first + each & 1]
        rows = self._rows(free, last)
        if not rows:
            return None
        if self.threads:
            return Gathered(rows[-1], (self.threads[1], self.threads[2]), RZ, None)
        rest = sorted({*free}.difference(range(rows[-1], rows[-1] + _WORDS)), reverse=True)
        needed = 2 if records <= _FEW else 3
        if len(rest) < needed:
            return None
        number, *masks = (*rest[:needed], RZ)
        second = self._reads(sites, early=False).index
        for begin in (first, second):
            if boards := self.room.through(range(begin, second + 1)).scoreboards:
                return Gathered(rows[-1], (masks[0], masks[1]), number, boards[-1], begin == first)
        return None

    def _rows(self, free: Sequence[int], last: int) -> list[int]:
        """Return where three of the free registers follow one another, and a fourth is written.

        Args:
            free: the registers.
            last: the instruction before which the last record is made.
        """
        late = self.room.flight.late(min(last, len(self.room.free) - 1))
        quads = (at for at in free if at % 4 == 0 and not late >> R.first + at + 3 & 1)
        return [each for each in quads if {each + 1, each + 2} <= {*free}]


MOST: Final = 8
"""The most records of a batch: a slot has room for all but one of them behind its last record."""
_TRIED: Final = 6
_LATE: Final = 20
"""Cycles until address and predicate can be used."""


class NotAllError(PatchError):
    """Some of the records that one store is to take can't be made: the others can, one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatch:
    """Records of one basic block, one after another."""

    shared: Shared | Gathered
    scratches: Mapping[Site, Scratch]  # of each site, in their order
    lead: Site | None = None  # where the shared code is, if that is before the first of them

    @property
    def first(self) -> Site:
        """The site of the shared code: address and predicate."""
        return self.lead or next(iter(self.scratches))

    @property
    def last(self) -> Site:
        """The site of the last record."""
        return next(reversed(list(self.scratches)))

    def records(self, made: Mapping[Site, int]) -> int:
        """Return how many records it has, of those that are made at each site."""
        return sum(made.get(site, 0) for site in self.scratches)


@dataclass(frozen=True)
class BatchFinder:
    """Finds the batches of one kernel.

    Args:
        ends: the probe regions that end at each site.
        room: the free registers.
        chooser: chooses the other registers of each record.
        leads: whether the shared code may come long before the records.
        gatherer: finds records that one store can take, if any.
    """

    ends: Mapping[Site, Sequence[ProbeRegion]]
    room: FreeRegisters
    chooser: ScratchChooser
    leads: bool = True
    gatherer: Gatherer | None = None
    _tried: dict[tuple[Site, Shared], dict[Site, Scratch]] = field(default_factory=dict)

    def found(self) -> list[RecordBatch]:
        """Return the batches; records in none have code for address and predicate of their own.

        The registers that a batch shares are reserved from its first record to its last. Records
        are gathered where that is worth it for the whole kernel.
        """
        if self.gatherer is None:
            return self._all()
        kept, made = self.room.kept.copy(), self._all()
        gathered = [each.scratches for each in made if isinstance(each.shared, Gathered)]
        if self.gatherer.is_worth(gathered) or not (gathered or self.gatherer.threads):
            return made
        self.room.restore(kept)
        self.room.release(R.first + each for each in self.gatherer.threads)
        return BatchFinder(self.ends, self.room, self.chooser, self.leads).found()

    def _all(self) -> list[RecordBatch]:
        made: list[RecordBatch] = []
        for sites in self._by_block():
            left, before, earlier = sites, None, Latest()
            while left:
                batch = self._gathered(left) or self._longest(left, before, earlier)
                if batch is not None:
                    self._take(batch)
                    made.append(batch)
                    earlier = earlier.followed_by(batch.scratches.values())
                count = len(batch.scratches) if batch else 1
                before, left = left[count - 1], left[count:]
        return made

    def _gathered(self, sites: Sequence[Site]) -> RecordBatch | None:
        found = self.gatherer.longest(sites) if self.gatherer else None
        return RecordBatch(*found) if found else None

    def _by_block(self) -> Iterator[list[Site]]:
        """Yield the sites of each block that all threads in it pass, in their order."""
        inline = sorted(site for site in self.ends if self._inline(site))
        graph = self.room.liveness.flow.graph
        for _, sites in groupby(inline, lambda site: graph.block(site.index)):
            yield list(sites)

    def _inline(self, site: Site) -> bool:
        if site.rank == TAKEN or site.index >= len(self.room.free):
            return False
        graph = self.room.liveness.flow.graph
        return bool(site.rank) or site.index > graph.blocks[graph.block(site.index)].first

    def _take(self, batch: RecordBatch) -> None:
        rows = range(batch.first.index, batch.last.index + 1)
        self.room.reserve(members(batch.shared.bits), rows)

    def _longest(
        self, sites: Sequence[Site], before: Site | None, earlier: Latest
    ) -> RecordBatch | None:
        """Return the longest batch from the first of some sites on; None if there is none.

        Args:
            sites: of one block, all that are left.
            before: the last site before them.
            earlier: the registers of the block's earlier records.
        """
        best: RecordBatch | None = None
        lead = self._lead(sites[0], before) if self.leads else None
        for count in range(1, len(sites) + 1):
            some = sites[:count]
            if sum(len(self.ends[each]) for each in some) > MOST:
                break
            batch = self._sharing(some, lead, earlier) if lead else None
            if batch is None and count > 1:
                batch = self._sharing(some, None, earlier)
            if batch is None and count > 1:
                break
            best = batch
        return best

    def _lead(self, site: Site, before: Site | None) -> Site | None:
        """Return the site where the first range begins, if that is early enough."""
        (place, *others), graph = self.ends[site], self.room.liveness.flow.graph
        lead = Site.of(place.start)
        if others or lead in self.ends or not self._inline(lead):
            return None
        if graph.block(lead.index) != graph.block(site.index) or (before and lead <= before):
            return None
        stalls = self.room.liveness.flow.code.controls.stalls[lead.index : site.index]
        return lead if int(stalls.sum()) >= _LATE else None

    def _sharing(
        self, sites: Sequence[Site], lead: Site | None, earlier: Latest
    ) -> RecordBatch | None:
        """Return a batch of all these sites, if there is one that costs none of them more."""
        first, last = (lead or sites[0]).index, sites[-1].index
        for shared in self._shared(first, last):
            scratches = self._scratches(sites, shared, earlier)
            if scratches is not None:
                return RecordBatch(shared, scratches, lead)
        return None

    def _shared(self, first: int, last: int) -> Iterator[Shared]:
        """Yield the registers that are free between two instructions, free predicates first."""
        named = self.room.liveness.named(range(first, last))
        spare = self.room.through(range(first, last + 1))
        free = [each for each in spare.predicates if not named >> P.first + each & 1]
        places = self._addresses(spare, named)
        if free:
            yield from (Shared(at, free[-1], near=self.chooser.near) for at in places)
            return
        late = self.room.flight.table[first][P.columns]
        there = [n for n, soon in enumerate(late) if not soon and not named >> P.first + n & 1]
        own = [each for each in spare.registers if not named >> R.first + each & 1]
        for at in places if there else ():
            shared = Shared(at, there[-1], near=self.chooser.near)
            rest = [each for each in own if not shared.where >> R.first + each & 1]
            if rest:
                yield replace(shared, saved=lone(rest))

    def _addresses(self, spare: Spare, named: int) -> list[int]:
        """Return the registers that can hold an address throughout, the best ones first."""
        if not self.chooser.near:
            return [each for each in spare.pairs if not named & span(each, 2)][::-1]
        free = [each for each in spare.registers if not named & span(each, 1)]
        members = set(free)
        return sorted(free, key=lambda each: (each ^ 1 in members, -each))[:_TRIED]

    def _scratches(
        self, sites: Sequence[Site], shared: Shared, earlier: Latest
    ) -> dict[Site, Scratch] | None:
        """Return the registers of records, if sharing makes none of them slower."""
        made = self._tried.setdefault((sites[0], shared), {})
        latest = earlier.followed_by(made.values())
        for site in sites[len(made) :]:
            one = self.chooser.for_member(site.index, shared, latest)
            if one is None:
                return None
            made[site] = one
            latest.add(one)
        return {site: made[site] for site in sites}


def check_gathered(
    batches: Iterable[RecordBatch],
    ends: Mapping[Site, Sequence[ProbeRegion]],
    made: Mapping[Site, int],
) -> None:
    """Refuse gathered batches of which only some records are made.

    Which thread holds which record, and which site stores them, is fixed for the whole batch.

    Args:
        batches: all there are.
        ends: the probe regions that end at each site.
        made: how many records are made at each site.

    Raises:
        NotAllError: some records of a gathered batch are not made.
    """
    gathered = (each for each in batches if isinstance(each.shared, Gathered))
    if any(made.get(at) != len(ends[at]) for each in gathered for at in each.scratches):
        raise NotAllError("records that are to be stored at once can't all be made.")


def margin(batches: Iterable[RecordBatch], made: Mapping[Site, int]) -> int:
    """Return how many records a warp may write behind the last that it keeps.

    Gathered records don't count: each of their threads knows whether there is room.
    """
    led = (each for each in batches if not isinstance(each.shared, Gathered))
    return max([1, *(batch.records(made) for batch in led)]) - 1


def planned(
    batches: Iterable[RecordBatch], made: Mapping[Site, int], begun: Collection[Site]
) -> tuple[dict[Site, Iterator[BatchPart]], dict[Site, RecordBatch]]:
    """Return the positions in their batch of each site's records, and the batch led from each site.

    Args:
        batches: all of them.
        made: how many records are made at each site.
        begun: the sites where ranges begin.
    """
    parts: dict[Site, Iterator[BatchPart]] = {site: repeat(ALONE) for site in made}
    leads: dict[Site, RecordBatch] = {}
    for batch in batches:
        sites, records = list(batch.scratches), batch.records(made)
        led = batch.lead is not None and batch.lead in begun and made.get(sites[0], 0) > 0
        if led and batch.lead:
            leads[batch.lead] = batch
        every = [BatchPart(number, records, led) for number in range(records)]
        parts |= dict.fromkeys(sites, iter(every))
    return parts, leads
