"""Choice of the records of a basic block that one store takes together, and of their registers.

Their code is in ``range_code``. All of the warp's threads must come to them. From the first of
them to the last, three registers must be free, or up to six, but no predicate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ikp.probes.code.reserved_registers import Gathered, Scratch
from ikp.probes.placement.probe_sites import Site
from ikp.probes.placement.scratch_registers import ScratchChooser, used
from ikp.probes.points.probe_points import ProbeRegion
from ikp.probes.points.sese_regions import Regions
from ikp.sass.assembly.assembler import PT
from ikp.sass.assembly.forms import RZ
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.disassembly.resources import R

MOST: Final = 8
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
            if records > MOST:
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
        choices = ([each for each in self.ends if self._block(each) in looped], [*self.ends])
        for some in choices:
            if some:
                every, members = sum(len(self.ends[each]) for each in some), set(some)
                inside = [group for group in groups if members.issuperset(group)]
                records = sum(len(self.ends[each]) for group in inside for each in group)
                return records - len(inside) > every * _WORTH
        return False

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
        late = self.room.flight.late(min(last, len(self.room.free) - 1))
        quads = [at for at in free if at % 4 == 0 and not late >> R.first + at + 3 & 1]
        rows = [each for each in quads if {each + 1, each + 2} <= {*free}]
        if not rows:
            return None
        if self.threads:
            return Gathered(rows[-1], (self.threads[1], self.threads[2]), RZ, None)
        rest = [each for each in reversed(free) if not rows[-1] <= each < rows[-1] + _WORDS]
        number, low, high, *_ = (*rest, RZ, RZ, RZ)
        if RZ in ((number, low) if records <= _FEW else (number, low, high)):
            return None
        masks = (low, RZ if records <= _FEW else high)
        for early in (True, False):
            second = self._reads(sites, early=False).index
            boards = self.room.through(range(first if early else second, second + 1)).scoreboards
            if boards:
                return Gathered(rows[-1], masks, number, boards[-1], early)
        return None
