"""Functions that a kernel calls within its own code: how often they run, and for which lines.

ptxas leaves long functions of its library (a power in double precision, a division of 64 bits) out
of line, behind the kernel's last instruction. They have no line of their own: an assembler gives
them that of the kernel's last brace. Such a function belongs to the line that calls it, and runs as
often as its calls do. Slow paths, for numbers that hardly any kernel has, never run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import Graph
from ikp.sass.disassembly.listing import Code

_RARE: Final = re.compile(r"slowpath|mediumpath|_f(?:32|64)_full|trig_reduction")
"""Functions of compilers that only denormal, huge or infinite numbers take."""
_LIBRARY: Final = re.compile(r"__internal_|__cuda_|__nv_")
_DEEP: Final = 3
"""Calls within calls that are followed."""


def with_lines_of_calls(code: Code) -> Code:
    """Return a kernel's code in which functions of the compiler's library have their call's line.

    Of several calls, that of the first.
    """
    graph = Graph(code)
    calls, made = _calls_of(graph), list(code.instructions)
    names = _names(code)
    for entry, some in calls.items():
        if _LIBRARY.search(names.get(entry, "")):
            lines = made[some[0]].lines
            for at in _body(graph, entry):
                made[at] = made[at].moved(made[at].address, lines, made[at].bits)
    return replace(code, instructions=tuple(made)) if calls else code


def _calls_of(graph: Graph) -> dict[int, list[int]]:
    """Return the calls of each function within a kernel's code, by its first instruction."""
    found: dict[int, list[int]] = {}
    for at, tos in graph.jumps.calls.items():
        for to in tos:
            found.setdefault(to, []).append(at)
    return found


def _names(code: Code) -> dict[int, str]:
    """Return the names of functions by their first instruction, and labels of others."""
    return {at: name for name, at in code.labels.items() if "L_x_" not in name}


def _body(graph: Graph, entry: int) -> list[int]:
    """Return the instructions of a function, in order: those that no jump from its start reaches.

    A record may be between any two of its blocks, and a patched kernel's own code behind them.
    """
    seen, work = {*graph.order}, [graph.block(entry)]
    found = list[int]()
    while work:
        block = work.pop()
        if block not in seen:
            seen.add(block)
            found += range(graph.blocks[block].first, graph.blocks[block].end)
            work += graph.after[block]
    return sorted(found)


@dataclass(frozen=True)
class Called:
    """The functions that one kernel calls within its code.

    Args:
        flow: the kernel.
        ours: the instructions of records.
    """

    flow: Flow
    ours: frozenset[int] = frozenset()

    @cached_property
    def inside(self) -> frozenset[int]:
        """The instructions of all these functions."""
        return frozenset(at for ats in self._bodies.values() for at in ats)

    def with_functions(self, how_often: Mapping[int, Often]) -> dict[int, Often]:
        """Return how often some instructions are executed, with the functions that they call.

        Of a function with several calls, the sum of these.
        """
        found = {at: often for at, often in how_often.items() if at not in self.inside}
        calls = [(at, often) for at, often in found.items() if at in self._calls]
        for _ in range(_DEEP):
            further = []
            for at, often in calls:
                for to in self._calls[at]:
                    for one in self._bodies[to]:
                        times = self._part(one, to, often)
                        found[one] = _joined(found[one], times) if one in found else times
                        if one in self._calls:
                            further.append((one, times))
            calls = further
        return found

    def _part(self, at: int, entry: int, often: Often) -> Often:
        """Return how often a call executes an instruction of its function."""
        if entry in self._rare:
            return Often(0.0, maybe=True)
        return often if self._surely(entry, at) else replace(often, maybe=True)

    def _surely(self, entry: int, at: int) -> bool:
        """Whether no way through a function goes past an instruction's block."""
        graph = self.flow.graph
        block = graph.block(at)
        seen, work = {block}, [graph.block(entry)]
        while work:
            one = work.pop()
            if one not in seen:
                seen.add(one)
                if self._returns(one):
                    return False
                work += graph.after[one]
        return True

    def _returns(self, block: int) -> bool:
        last = self.flow.graph.blocks[block].end - 1
        return self.flow.code.instructions[last].op == "RET"

    @cached_property
    def _calls(self) -> dict[int, list[int]]:
        return {at: tos for at, tos in self.flow.graph.jumps.calls.items() if tos}

    @cached_property
    def _bodies(self) -> dict[int, list[int]]:
        graph = self.flow.graph
        return {
            entry: [at for at in _body(graph, entry) if at not in self.ours]
            for entry in _calls_of(graph)
        }

    @cached_property
    def _rare(self) -> frozenset[int]:
        names = _names(self.flow.code)
        return frozenset(to for to in self._bodies if _RARE.search(names.get(to, "")))


def _joined(one: Often, other: Often) -> Often:
    if one.looped != other.looped:
        return one if one.looped else other
    if one.maybe != other.maybe and not one.looped:
        return Often(one.expected + other.expected)
    return replace(one, times=one.times + other.times)
