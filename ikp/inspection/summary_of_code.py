"""``CodeFacts`` of compiled kernels, by range: instruction mix, work, waits and memory accesses.

Each instruction counts for the innermost range that holds it. Where records went into finished
machine code, the kernel's own range, which is no record, holds the rest. A mix keeps apart what is
surely executed, what is under a condition, and what is in a loop of unknown trips.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ikp.core.code_facts import CodeFacts, RangeFacts
from ikp.core.excess_facts import NO_EXCESS
from ikp.core.run_figures import AddressFigures
from ikp.inspection import _images as ptx_names
from ikp.inspection import _work
from ikp.inspection._accesses import Accesses
from ikp.inspection._awaited_loads import AwaitedLoads
from ikp.inspection._barriers import has_own_shared, needless_barriers
from ikp.inspection._called import Called, with_lines_of_calls
from ikp.inspection._excess import Excess
from ikp.inspection._executed import Executed, figures_by_place
from ikp.inspection._expansions import lines
from ikp.inspection._extra import Extra
from ikp.inspection._find_records import find
from ikp.inspection._halo import halo
from ikp.inspection._held_up import copies_ahead
from ikp.inspection._images import PtxMarks, codes
from ikp.inspection._plain_kernel import plain_facts
from ikp.inspection._record import FoundRecords, Record
from ikp.inspection._sureness import Sureness
from ikp.inspection._work import Often
from ikp.inspection._work_of_range import (
    activity,
    bytes_of,
    flop_of,
    has,
    issue_cycles,
    wavefronts,
)
from ikp.inspection.inspector import lost_ranges
from ikp.plugins import Image
from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.cubins.attributes import AttributeCode as Attributed
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.dataflow.idioms import reports
from ikp.sass.dataflow.lane_state import Shape
from ikp.sass.disassembly.listing import Code
from ikp.sass.disassembly.opcodes import Work, work_of

_FEW = 8
"""Instructions in loops inside of a range (a wait that spins) that don't count for its issue."""
_TWO = 2
_NUMBERS = ("flop", "bytes", "shared", "issue", "lane_bytes")
"""Fields of ``RangeFacts`` that all copies of a range must agree on."""


def code_facts(
    image: Image, shape: Shape | None = None, figures: AddressFigures | None = None
) -> dict[str, CodeFacts]:
    """Return what is known of each kernel of an image that records, by name.

    Args:
        image: the image.
        shape: how its kernel was launched, by which addresses are computed.
        figures: what address probes recorded of it, which say the trips that data decide, and
            what requests cost whose addresses they do.

    Raises:
        InspectError: there is no disassembler, or it refuses the file.
        PatchError: the file is of a form that is not known.
    """
    marks = ptx_names.read_marks(image.ptx)
    file = Cubin.read(image.cubin)
    kernels, found = file.kernels, {}
    for code in codes(image, file):
        flow = Flow(with_lines_of_calls(code))
        first = _first_parameter(kernels[code.name]) if code.name in kernels else 0
        summary = _Summary(flow, marks, shape or Shape(), first, reports(file, flow), figures)
        if code.name in kernels and (summary.records or code.name == marks.kernel):
            shared = marks.shared if image.shared is None else image.shared
            facts = summary.facts(kernels[code.name].registers, shared)
            found[code.name] = replace(
                facts,
                lost=lost_ranges(flow, summary.found, marks, image),
                **plain_facts(image, code.name),
            )
    return found


def _first_parameter(kernel: Kernel) -> int:
    """Return where a kernel's parameters begin in the constant bank: 0x210 before sm_100."""
    placed = (each for each in kernel.attributes if each.code == Attributed.PARAM_CBANK)
    return next((each.words[1] & 0xFFFF for each in placed if len(each.words) > 1), 0x210)


@dataclass(frozen=True)
class _Summary:
    """Sums up one kernel."""

    flow: Flow
    marks: PtxMarks
    shape: Shape
    first_parameter: int
    reports: frozenset[int] = frozenset()  # calls that report a failed check
    figures: AddressFigures | None = None

    @property
    def code(self) -> Code:
        return self.flow.code

    @cached_property
    def found(self) -> FoundRecords:
        """What records it."""
        return find(self.flow)

    @cached_property
    def records(self) -> dict[str, list[Record]]:
        """The records of ranges, by name."""
        found: dict[str, list[Record]] = defaultdict(list)
        for record in self.found.records:
            first = record.spans[0]
            if ptx_names.kind(record.tag, instant=first.start == first.end) != "instant":
                found[self.marks.name(record.tag)].append(record)
        return dict(found)

    def _rest(self, rest: set[int]) -> RangeFacts:
        """Return what is known of the code in no range, which is the kernel's own."""
        once = {at for at in rest if self.flow.loop_of(at) is None and self._by_all(at)}
        found = self._holding(rest, once)
        often = {at: self._of_kernel(at) for at in sorted(rest - self._called.inside)}
        return self._with_work(found, self._called.with_functions(often))

    def _knows_products(self, ranges: Mapping[str, RangeFacts]) -> bool:
        """Whether there are products on tensor cores, all in ranges whose operations are known."""
        every = enumerate(self.code.instructions)
        holders = [self._holder(at) for at, each in every if work_of(each) is Work.TENSOR]
        return bool(holders) and all(one and ranges[one].flop is not None for one in holders)

    def facts(self, registers: int, shared: int | None) -> CodeFacts:
        """Return what is known of it."""
        ranges = {name: self._range(records) for name, records in self.records.items()}
        rest = set(range(len(self.code.instructions))) - self._innermost.keys() - self._of_records
        if self.marks.kernel:
            ranges[self.marks.kernel] = self._rest(rest)
        return CodeFacts(
            *(self.code.target, registers, shared, self._knows_products(ranges), ranges),
            plain_registers=self.marks.plain_registers,
            loops=_work.loops(self.flow, self._of_records),
            kernel=self.marks.kernel,
            ahead=copies_ahead(self.flow),
            halo=halo(self._accesses.values, self._of_records),
        )

    def _holder(self, at: int) -> str:
        """Return the name of the innermost range around an instruction; empty for none."""
        inner = self._innermost.get(at)
        return self.marks.kernel if inner is None else self._names[inner]

    def _range(self, records: list[Record]) -> RangeFacts:
        """Return what is known of the copies of one range: only what they agree on."""
        each = [self._copy(record) for record in records]
        kinds = {one.activity for one in each}
        agreed: dict[str, Any] = {
            name: _same(getattr(one, name) for one in each) for name in _NUMBERS
        }
        waits = tuple(sorted({name for record in records for name in self._awaited(record)}))
        found = RangeFacts(kinds.pop() if len(kinds) == 1 else "", **agreed, awaits=waits)
        made = self._with_work(found, self._called.with_functions(self._most(records)))
        if len({self.flow.loop_of(record.spans[0].start) for record in records}) < _TWO:
            return made
        # Which of its executions a mask of one copy is about, the records don't say.
        return replace(made, excess=replace(made.excess, useful=NO_EXCESS.useful))

    def _most(self, records: list[Record]) -> dict[int, Often]:
        """Return how often that copy of a range is executed that is executed most often.

        It is in the most loops.
        """
        copies = [self._how_often(record) for record in records]
        return max([*filter(self._comes, copies)] or copies, key=self._weight)

    def _weight(self, how_often: dict[int, Often]) -> tuple[int, int]:
        depth = (len(self.flow.loops_around(at)) for at in how_often)
        return min(depth, default=0), len(how_often)

    def _comes(self, how_often: Mapping[int, Often]) -> bool:
        """Whether any warp comes to a copy of a range, or it is not known.

        None comes to the body of an unrolled loop that has fewer iterations.
        """
        values = self._accesses.values
        at = min(how_often, default=None)
        return at is None or values.is_guessed(at) or values.warps(at) > 0

    def _with_work(self, facts: RangeFacts, how_often: dict[int, Often]) -> RangeFacts:
        """Return a range's facts with its instruction mix and its accesses."""
        instructions = self.code.instructions
        weights = [(instructions[at], often.weight) for at, often in how_often.items()]
        return replace(
            facts,
            activity=activity(weights) if weights else facts.activity,
            mix=_work.mix(self.flow, how_often),
            line=_work.line_of(self.flow, how_often),
            accesses=self._accesses.of(how_often),
            apart=_work.times_apart(self._divergence, how_often),
            sums=_work.sums(self.flow, how_often),
            products=_work.products(self.flow, how_often),
            bulk_bytes=self._accesses.bulk_bytes(how_often),
            polls=_work.polls(self.flow, self._accesses.values, how_often, self._of_records),
            chases=_work.chases(self.flow, self._chasing, how_often),
            constants=_work.constants_apart(self.flow, self._accesses.values, how_often),
            lines=lines(self.flow, how_often, self._extra.serves.part),
            excess=self._excess.of(how_often),
            extra=self._extra.of(how_often),
            serves=self._extra.serves.of(how_often),
            needless=float(
                sum(each.expected for at, each in how_often.items() if at in self._needless)
            ),
        )

    def _how_often(self, record: Record) -> dict[int, Often]:
        """Return how often each instruction of a range is executed for each record."""
        number = self._numbers[record]
        own = self._own.get(number, ())
        found, known = {}, dict[int, Often]()
        edges = {self.flow.graph.block(at) for one in record.spans for at in (one.start, one.end)}
        for at in own:
            block = self.flow.graph.block(at)
            if block in edges or block not in known:
                known[block] = self._of_record(at, record)
            found[at] = known[block]
        return found

    def _of_record(self, at: int, record: Record) -> Often:
        starts = [span.start for span in record.spans]
        held = (span for span in record.spans if span.holds(at))
        surely = self.marks.always_kept(record.tag) and all(
            self._sureness.surely(span, at) for span in held
        )
        return self._often(at, starts, surely=surely)

    def _often(self, at: int, starts: Sequence[int], *, surely: bool) -> Often:
        """Return how often an instruction is executed for each time that one of some others is.

        Args:
            at: the instruction.
            starts: the others; none of the kernel's start.
            surely: whether each time leads to the instruction.
        """
        values = self._accesses.values
        if self.flow.graph.block(at) in self._divergence.slow:
            return Often(0.0, maybe=True)
        whole = Often.in_loops(self._trips(at, starts))
        if whole.looped:
            return whole
        times = whole.times
        if (loop := self._counted_loop(at, starts)) is not None:
            part = self._executed.part(at, loop)
            return Often(times, maybe=True) if part is None else Often(times * part)
        if surely:
            return Often(times)
        if values.is_guessed(at):
            return Often(times, maybe=True)
        begins = max((values.warps(one) for one in starts), default=1.0)
        return Often(times * min(values.warps(at) / begins, 1.0) if begins else times)

    def _trips(self, at: int, starts: Sequence[int]) -> list[float | None]:
        """Return the trips of the loops around an instruction that some others are not all in."""
        return [self._executed.trips(each) for each in self._loops_between(at, starts)]

    def _loops_between(self, at: int, starts: Sequence[int]) -> list[Loop]:
        around = self.flow.loops_around(at)
        return [each for each in around if not (starts and each.body.issuperset(starts))]

    def _counted_loop(self, at: int, starts: Sequence[int]) -> Loop | None:
        """Return the innermost of these loops, if counted requests alone say its trips."""
        inner = next(reversed(self._loops_between(at, starts)), None)
        return inner if inner is not None and self._executed.is_counted(inner) else None

    @cached_property
    def _executed(self) -> Executed:
        figures, warps = self._accesses.recorded, self.figures.warps if self.figures else 0
        return Executed(self.flow, self._accesses.values, figures, warps)

    @cached_property
    def _chasing(self) -> frozenset[int]:
        return _work.chasing_loads(self._extra.uses)

    def _of_kernel(self, at: int) -> Often:
        """Return how often an instruction in no range is executed by each warp."""
        block = self.flow.graph.block(at)
        if block not in self._always:
            around = self.flow.loop_of(at) is None and self._sureness.always(at)
            self._always[block] = self._often(at, (), surely=around)
        return self._always[block]

    @cached_property
    def _always(self) -> dict[int, Often]:
        return {}

    @cached_property
    def _called(self) -> Called:
        return Called(self.flow, frozenset(self._of_records))

    @cached_property
    def _accesses(self) -> Accesses:
        known = self.shape.parameters(self.first_parameter)
        recorded = figures_by_place(self.flow, self.figures, self._of_records)
        records = self._of_records
        return Accesses(self.flow, self.shape, self.first_parameter, known, records, recorded)

    @cached_property
    def _excess(self) -> Excess:
        values, results = self._accesses.values, self._extra.serves.results
        return Excess(self.flow, values, self._accesses.whole, self._of_records, results)

    @cached_property
    def _sureness(self) -> Sureness:
        return Sureness(self.flow)

    @cached_property
    def _extra(self) -> Extra:
        accesses = self._accesses
        values, sectors = accesses.values, accesses.sectors
        return Extra(self.flow, values, sectors, self.reports, self._of_records)

    @cached_property
    def _needless(self) -> frozenset[int]:
        own = has_own_shared(self._accesses.whole, self._of_records)
        return needless_barriers(self.flow, self._of_records, own_shared=own)

    @cached_property
    def _divergence(self) -> _work.Divergence:
        return _work.Divergence(self.flow, self._accesses.values)

    def _awaited(self, record: Record) -> set[str]:
        """Return the other ranges whose loads a range waits for: there their time is spent."""
        number, own = self._numbers[record], self._names[self._numbers[record]]
        loads = self._awaited_by.get(number, set())
        return {self._names[self._innermost[at]] for at in loads & self._innermost.keys()} - {own}

    @cached_property
    def _awaited_by(self) -> dict[int, set[int]]:
        """The loads that the waits in a range are for, by the number of its record."""
        found: dict[int, set[int]] = defaultdict(set)
        for wait in self._loads.waits:
            if (number := self._innermost.get(wait.at)) is not None:
                found[number].update(wait.loads)
        return dict(found)

    @cached_property
    def _loads(self) -> AwaitedLoads:
        return AwaitedLoads(self.flow)

    def _copy(self, record: Record) -> RangeFacts:
        number = self._numbers[record]
        own = self._own.get(number, ())
        return self._holding(own, {at for at in own if self._once(at, record)})

    def _holding(self, own: Collection[int], executed: Collection[int]) -> RangeFacts:
        """Return what is known of a range of some instructions.

        Args:
            own: those that are in no range inside of it.
            executed: those of them that run at most once for each time.
        """
        once = [self.code.instructions[at] for at in own if at in executed]
        many = [self.code.instructions[at] for at in own if at not in executed]
        return RangeFacts(
            activity((each, 1.0) for each in once + many),
            flop_of(once, many),
            bytes_of(once, many),
            None if has(many, Work.SHARED) else sum(map(wavefronts, once)),
            None if len(many) > _FEW else sum(map(issue_cycles, once)),
            self._loads.narrowest(own),
        )

    def _by_all(self, at: int) -> bool:
        """Whether each warp runs an instruction, if that is a product."""
        product = work_of(self.code.instructions[at]) is Work.TENSOR
        return not product or self._sureness.always(at)

    def _once(self, at: int, record: Record) -> bool:
        """Whether an instruction of a range runs at most once for each record; a product, just so.

        Of products it must be known how often they ran: of others, what they need at most.
        """
        loop = self.flow.loop_of(at)
        if loop is not None and not all(span.start in loop.body for span in record.spans):
            return False
        if work_of(self.code.instructions[at]) is not Work.TENSOR:
            return True
        return self.marks.always_kept(record.tag) and all(
            span.holds(at) and self._sureness.surely(span, at) for span in record.spans
        )

    @cached_property
    def _numbers(self) -> dict[Record, int]:
        every = (record for records in self.records.values() for record in records)
        return {record: number for number, record in enumerate(every)}

    @cached_property
    def _names(self) -> list[str]:
        return [name for name, records in self.records.items() for _ in records]

    @cached_property
    def _innermost(self) -> dict[int, int]:
        """The record that holds each instruction; of several the one that holds least."""
        found: dict[int, tuple[int, int]] = {}
        own = self._of_records
        for record, number in self._numbers.items():
            contents = {at for span in record.spans for at in span.contents} - own
            for at in contents:
                found[at] = min(found.get(at, (len(contents), number)), (len(contents), number))
        return {at: number for at, (_, number) in found.items()}

    @cached_property
    def _own(self) -> dict[int, list[int]]:
        """The instructions of which each record is the innermost, in order."""
        found: dict[int, list[int]] = {}
        for at, number in sorted(self._innermost.items()):
            found.setdefault(number, []).append(at)
        return found

    @cached_property
    def _of_records(self) -> set[int]:
        """The instructions that ikp put in."""
        mine = {at for record in self._numbers for at in record.stores} | {*self.found.published}
        mine |= {i for r in self._numbers for span in r.spans for i in (span.start, span.end)}
        addresses = [each.address for each in self.code.instructions]
        for first, end in self.marks.ours:
            mine.update(range(bisect_left(addresses, first), bisect_left(addresses, end)))
        return mine


def _same(values: Iterable[int | None]) -> int | None:
    """Return the value that all have; None where they differ, or one is not known."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
