"""Emission of probes: their instructions with waits, interleaved with the kernel's own code.

A record's store issues some twenty cycles after its clock was read, and in only ten of them a probe
instruction issues. Where the kernel does not need the probe's registers soon, its next instructions
fill the other cycles.

A record's store reads its registers some time after it has issued. So the registers, and the
scoreboard of that read, are the kernel's again only behind a wait. The wait is as far behind the
store as can be: before the next record, or at the end of the block. It comes earlier if an
instruction would write one of the registers or take the scoreboard: then before the first of these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

from ikp.probes.code.reserved_registers import Scratch
from ikp.probes.placement.entry_and_exits import unless_staying
from ikp.probes.placement.probe_sites import TAKEN, Site, SiteCode, written
from ikp.probes.placement.record_batches import RecordBatch
from ikp.probes.placement.register_choice import lent
from ikp.probes.placement.scratch_registers import ScratchChooser, used
from ikp.sass.assembly.assembler import NOP, PT, Step, assemble, behind_barrier, spread
from ikp.sass.control_flow.flow import collective_bodies
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.disassembly.effects import P, R, members, table
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.insertion.displacement import Insertion
from ikp.sass.insertion.insert import OnEdge

_APART = ("WARPGROUP", "DEPBAR", "UTC", "USETMAXREG", "WARPSYNC", "BSYNC", "NANOSLEEP")
"""Prefixes of instructions that fill no probe; nor does a warpgroup's product."""
_MOST = 16
"""The most instructions that fill a probe: a reader of the code still finds its stores together."""


def _needs(scratch: Scratch, stores: bool, begun: int) -> tuple[int, int]:
    """Return the registers that must stay free to a probe's end; and those that none may touch."""
    members = 1 << R.first + scratch.last | (used(scratch) if stores else 0)
    touched = begun | (1 << P.first + scratch.predicate if stores else 0)
    if scratch.saved is None:
        members |= touched & P.all
    else:  # the kernel needs that predicate, later
        members |= 1 << R.first + scratch.saved
    touched |= members
    if scratch.gathered is not None and scratch.predicate != PT:
        touched |= scratch.gathered.stored  # no load into the fourth may begin before the store
    return members, touched


def fillers(
    room: FreeRegisters,
    first: int,
    stop: int,
    scratch: Scratch,
    stores: bool,
    begun: int,
    held: int = 0,
) -> list[int]:
    """Return the cycles for which each filling instruction, at least, holds back the next one.

    They follow one another, from the first on, as long as the probe's rest can come behind them.

    Args:
        room: the free registers.
        first: the instruction before which the probe begins.
        stop: the instruction before which, at the latest, it must be over.
        scratch: the probe's registers.
        stores: whether it stores a record; else it only reads a clock.
        begun: the registers from which it takes starts, as bits.
        held: the registers that are reserved until after ``stop``, as bits.
    """
    code, effects = room.liveness.flow.code, room.liveness.effects
    jumps, stalls = room.liveness.flow.graph.jumps, code.controls.stalls
    members, touched = _needs(scratch, stores, begun)
    columns = table([members & ~held])[0]
    found: list[int] = []
    for at in range(first, min(stop, first + _MOST)):
        own, opcode = effects[at], code.instructions[at].opcode
        leaves = at in jumps.leaving or at in jumps.calls or at + 1 >= len(room.free)
        if leaves or "GMMA" in opcode or opcode.startswith(_APART):
            break
        if (own.reads | own.writes) & touched or not room.free[at + 1][columns].all():
            break
        found.append(max(int(stalls[at]), 1))
    return found


@dataclass(frozen=True)
class Emitter:
    """Emits the probes of one kernel.

    Args:
        room: the free registers.
        chooser: knows when the kernel next needs the registers that a probe uses.
        runs: the probe code at each site.
        batches: the batch of records that each site belongs to.
        leads: the batch whose address and predicate are computed at a site before its records.
        fitted: rewrites probe code to the chip's instructions and the frame's registers.
        late: whether no instruction of the kernel may be interleaved with a probe's.
    """

    room: FreeRegisters
    chooser: ScratchChooser
    runs: Mapping[Site, SiteCode]
    batches: Mapping[Site, RecordBatch]
    leads: Mapping[Site, RecordBatch]
    fitted: Callable[[list[Step]], list[Step]]
    late: bool
    _waits: dict[Site, int] = field(default_factory=dict)  # before a site's code: scoreboards' bits
    _late: dict[Site, int] = field(default_factory=dict)  # behind a site's code: the same
    _over: dict[Site, int] = field(default_factory=dict)  # where a probe's registers must be free

    def inline(self) -> Iterable[Insertion]:
        """Yield the probe code between the kernel's own instructions."""
        for site, each in self.runs.items():
            if each.stores and site.rank != TAKEN:
                self._wait_behind(site, each)
        sites = sorted({*self._inline, *self._waits})
        for at, site in enumerate(sites):
            for passed, words in self._parts(site, sites[at + 1 :]):
                yield Insertion(site.index + passed, tuple(words), site.rank == 0 and not passed)

    def _parts(self, site: Site, behind: Sequence[Site]) -> list[tuple[int, list[int]]]:
        """Return the code of a site in parts, as ``spread``; ``behind`` are the sites behind it."""
        run = self.runs.get(site)
        early, late = self._waits.get(site, 0), self._late.get(site, 0)
        first, *rest = self._steps(run, site.index) if run else [NOP]
        steps = self.fitted([first.after(early), *rest, *([NOP.after(late)] if late else [])])
        if run is None:
            return spread(steps, 0, [], "")
        cycles = [] if late else self._fillers(site, run, behind)
        return spread(steps, run.scratch.scoreboard, cycles, run.settled, run.late)

    def on_edges(self) -> list[OnEdge]:
        """Return the probe code on the edges of jumps."""
        return [
            OnEdge(site.index, self._apart(run, site.index))
            for site, run in sorted(self.runs.items())
            if site.rank == TAKEN and self._code[site.index].op != "EXIT"
        ]

    def on_leaving(self) -> list[Insertion]:
        """Return the probe code that only the threads run that leave a loop by an EXIT."""
        return [
            Insertion(site.index, self._apart(run, site.index, leaves=True))
            for site, run in sorted(self.runs.items())
            if site.rank == TAKEN and self._code[site.index].op == "EXIT"
        ]

    def _steps(self, run: SiteCode, index: int) -> list[Step]:
        """Return the steps of a probe before an instruction."""
        steps = lent(run.steps, run.scratch.pair)
        return behind_barrier(steps) if index in self.room.pending_barriers else steps

    def _apart(self, run: SiteCode, index: int, *, leaves: bool = False) -> tuple[int, ...]:
        """Return the words of a probe on an edge of its own: its last store is waited for there.

        Args:
            run: the probe.
            index: the jump of that edge, or the EXIT of the threads that run the probe.
            leaves: whether it is an EXIT.
        """
        steps = [*self._steps(run, index), NOP.after(run.scratch.busy)]
        if leaves:
            steps = [*unless_staying(self.room, index, len(steps)), *steps]
        return tuple(assemble(self.fitted(steps), run.scratch.scoreboard, "RP", run.late))

    @property
    def _code(self) -> Sequence[Instruction]:
        return self.room.liveness.flow.code.instructions

    def _wait_behind(self, site: Site, run: SiteCode) -> None:
        """Place the wait for a probe's last store before the kernel needs the store's registers."""
        registers, board = used(run.scratch) | run.stored, run.scratch.scoreboard
        if run.scratch.gathered is not None:
            if site != self.batches[site].last:
                return
            registers = run.scratch.gathered.stored
        index, choose = site.index, self.chooser
        end = choose.end(index)
        if index >= end:
            return
        met = self._met(site, end, registers)
        needed = min(index + choose.reach(index, members(registers), board), end - 1)
        needed = self._collective.get(needed, needed)
        at = needed if met is None else min(needed, met.index)
        waited = choose.waited(index, board)
        left = waited < end and self._code[waited].op == "EXIT"  # the header's code precedes it
        if waited <= at and not left and (met is None or waited < met.index):
            self._over[site] = waited
            return
        self._over[site] = at
        there = met if met is not None and met.index == at else Site(at, 1)
        waits = self._late if there == site else self._waits
        waits[there] = waits.get(there, 0) | run.scratch.busy

    def _met(self, site: Site, end: int, registers: int) -> Site | None:
        """Return the next site of a block whose probe writes one of these registers."""
        later = self._inline[bisect_right(self._inline, site) :]
        ahead = takewhile(lambda each: each.index < end, later)
        return next((each for each in ahead if self._meets(each, registers)), None)

    @cached_property
    def _collective(self) -> dict[int, int]:
        return collective_bodies(self.room.liveness.flow.code)

    @cached_property
    def _inline(self) -> list[Site]:
        """The sites between the kernel's own instructions, in order."""
        return sorted(each for each in self.runs if each.rank != TAKEN)

    def _meets(self, site: Site, registers: int) -> bool:
        """Return whether a site's probe writes one of these registers."""
        batch = self.batches.get(site)
        shared = 0 if batch is None or site == batch.first else batch.shared.bits
        led = self.leads[site].shared.bits if site in self.leads else 0
        return bool(registers & (written(self.runs[site]) & ~shared | self.runs[site].kept | led))

    def _light(self, site: Site, needed: int = 0) -> bool:
        """Whether a site only reads clocks, into registers that are not ``needed``."""
        run = self.runs.get(site)
        if run is None or site in self._waits or site in self._late:
            return False
        return run.clocks_alone and not run.kept & needed

    def _fillers(self, site: Site, run: SiteCode, later: Sequence[Site]) -> list[int]:
        """Return the cycles of the kernel's instructions that may fill a probe's latencies."""
        scratch, graph = run.scratch, self.room.liveness.flow.graph
        block = graph.blocks[graph.block(site.index)]
        falls = not site.rank and site.index == block.first  # other edges lead to that code, too
        if falls or self.late or scratch.pair is not None:
            return []
        next_ = next((each.index for each in later if not self._light(each, run.begun)), block.end)
        ends = (self._over.get(site, block.end), next_, block.end)
        batch = self.batches.get(site)
        held = batch.shared.bits if batch is not None and site != batch.last else 0
        stop = min(ends) - 1
        return fillers(self.room, site.index, stop, scratch, run.stores, run.begun, held)
