"""``LaneValues``: the addresses that the threads of some warps compute, from the code alone.

One walk over the basic blocks in reverse postorder evaluates integer arithmetic for the threads of
some warps of some blocks. Each value carries what it depends on. Values behind a load, and those of
instructions that are not evaluated, are unknown; where paths meet, the first path's value is taken.
A loop's body is walked once, as its first iteration; what an iteration hands to the next one
depends on the loop. Parameters have the values that the caller gives, or assumed ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.lane_effects import execute, name_of
from ikp.sass.dataflow.lane_state import FIRST_LOOP, Launched, Threads, Value
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.disassembly.resources import members

_NOTED = "LD LDG LDS LDL LDSM ST STG STS STL STSM ATOM ATOMG ATOMS RED REDG LDGSTS SYNCS"
ACCESSES = frozenset(_NOTED.split())
"""Instructions whose address is noted."""


@dataclass(frozen=True)
class LaneValues:
    """The values of one kernel.

    Args:
        flow: the kernel.
        launch: how it was launched.
    """

    flow: Flow
    launch: Launched

    def address(self, at: int) -> Value:
        """Return the address of an access, of each thread; of 64 bits, of shared memory 32.

        Unknown where no path leads to it.
        """
        return self._walked[0].get(at, _NOWHERE)[0]

    def active(self, at: int) -> Value:
        """Return 1 for each thread that an access's guard lets run."""
        return self._walked[0].get(at, _NOWHERE)[1]

    def operand(self, at: int) -> Value:
        """Return the last operand of an access."""
        return self._walked[0].get(at, _NOWHERE)[2]

    def branch(self, at: int) -> int:
        """Return what a jump's condition depends on."""
        return self._walked[1].get(at, 0)

    def depends_on_loop(self, depends: int, header: int) -> bool:
        """Return whether a value depends on the iteration of a loop, by its header's index."""
        number = self._loops.get(header)
        return number is not None and bool(depends >> number & 1)

    @cached_property
    def _loops(self) -> dict[int, int]:
        """The bit of each loop, by the index of its first instruction."""
        headers = sorted(each.header for each in self.flow.loops)
        return {header: FIRST_LOOP + n for n, header in enumerate(headers)}

    @cached_property
    def _carried(self) -> dict[int, set[str]]:
        """The registers that each loop hands from one iteration to the next, by its header."""
        live, effects = Liveness(self.flow).own, self.flow.effects
        found = {}
        for loop in self.flow.loops:
            written = 0
            for at in loop.body:
                written |= effects[at].writes
            found[loop.header] = {name_of(each) for each in members(written & live[loop.header])}
        return found

    @cached_property
    def _walked(self) -> tuple[dict[int, tuple[Value, Value, Value]], dict[int, int]]:
        """What is noted of accesses, and what the conditions of jumps depend on."""
        graph = self.flow.graph
        noted, jumps = dict[int, tuple[Value, Value, Value]](), dict[int, int]()
        leaving: dict[int, dict[str, Value]] = {}
        for number in graph.order:
            state = _met([leaving[each] for each in graph.before[number] if each in leaving])
            block = graph.blocks[number]
            if block.first < block.end and block.first in self._carried:
                self._carry(block.first, state)
            threads = Threads(self.launch, state)
            for at in range(block.first, block.end):
                each = self.flow.code.instructions[at]
                if each.never_runs:
                    continue
                if each.op in ACCESSES:
                    noted[at] = threads.address(each), threads.guard(each), threads.last(each)
                if each.op in ("BRA", "EXIT"):
                    jumps[at] = threads.condition(each)
                execute(threads, each, self.flow.effects[at])
            leaving[number] = state
        return noted, jumps

    def _carry(self, header: int, state: dict[str, Value]) -> None:
        """Make what a loop hands on depend on its iteration."""
        bit = 1 << self._loops[header]
        for name in self._carried[header]:
            value = state.get(name, _UNKNOWN)
            state[name] = Value(value.bits, value.depends | bit)


_UNKNOWN = Value(None, 0)
_NOWHERE = (_UNKNOWN, _UNKNOWN, _UNKNOWN)


def _met(states: list[dict[str, Value]]) -> dict[str, Value]:
    """Return the state where paths meet: the first one's values, that depend on what all do."""
    found = dict(states[0]) if states else {}
    for other in states[1:]:
        for name, value in other.items():
            mine = found.get(name)
            if mine is None:
                found[name] = value
            elif mine is not value:
                found[name] = Value(mine.bits, mine.depends | value.depends)
    return found
