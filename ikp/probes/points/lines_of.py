"""Source lines of an instruction: its own, the PTX's, or those of the instructions it awaits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ikp.probes.points.counted_waits import Issued, awaited
from ikp.probes.points.ptx_lines import (
    barrier_lines,
    callers,
    load_lines,
    product_lines,
    wait_lines,
)
from ikp.probes.points.sese_regions import Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Line
from ikp.sass.disassembly.opcodes import Landmark, landmark

_Chain = tuple[Line, ...]
"""Lines of functions that are inlined in each other, the innermost first."""


@dataclass(frozen=True)
class AboutLines:
    """The source lines of one kernel's instructions.

    Args:
        flow: the kernel.
        ptx: its PTX; lines of a warpgroup's products, and of some loads, are right only with it.
        regions: its regions, for the loop around an instruction.
    """

    flow: Flow
    ptx: str
    regions: Regions

    def own(self, at: int) -> _Chain:
        """Return an instruction's lines, a load's as the PTX has them."""
        lines = self.flow.code.instructions[at].lines
        called = self.with_calls(lines)
        lines = self._barriers.get(at, lines) if called is lines and len(lines) == 1 else called
        if not lines:
            return lines
        if landmark(self.flow.code.instructions[at].opcode) is Landmark.LOAD:
            return (self._loads.get(lines[0], lines[0]), *lines[1:])
        return self._waits.get(at, lines)

    def with_calls(self, lines: _Chain) -> _Chain:
        """Return lines with those of the calls that they are in, where only one chain is known."""
        # Where the machine code names callers, it names all of them.
        return self._callers.get(lines[0], lines) if len(lines) == 1 else lines

    def about(self, at: int) -> list[_Chain]:
        """Return the lines that an instruction works for: of a wait, those of what it awaits."""
        awaits = self.awaited.get(at)
        if awaits:
            found = [chain for each in awaits for chain in self.about(each)]
            return list(dict.fromkeys(found)) or [self.own(at)]
        if at in self.products:
            return [self.products[at]]
        return [self.own(at)]

    def chains(self, members: Iterable[int]) -> tuple[list[_Chain], str]:
        """Return the lines of instructions, and a note where these are not their own."""
        members = list(members)
        instructions = self.flow.code.instructions
        if not any("GMMA" in instructions[at].opcode for at in members):
            return [chain for at in members for chain in self.about(at)], ""
        known = [self.products.get(at, ()) for at in members]
        if all(known):
            return known, ""
        wait = next((i for i in instructions[members[-1] :] if _awaits_product(i.opcode)), None)
        return ([wait.lines], "line of its wait") if wait else ([], "line not known")

    @cached_property
    def awaited(self) -> dict[int, tuple[int, ...]]:
        """Waits -> the instructions they await, where known: of counting waits, and of a loop's
        only wait for an mbarrier.
        """
        instructions = self.flow.code.instructions
        found = {at: tuple(each.at for each in of) for at, of in self.counted.items()}
        if not self.products:  # the lines of products are not known
            found = {
                at: members
                for at, members in found.items()
                if landmark(instructions[at].opcode) is not Landmark.PRODUCT_WAIT
            }
        return {**self._arrivals(), **found}

    @cached_property
    def counted(self) -> dict[int, tuple[Issued, ...]]:
        """Waits that count commits -> the instructions they await."""
        return awaited(self.flow.code.instructions, self._region)

    def _arrivals(self) -> dict[int, tuple[int, ...]]:
        """Return a loop's only wait for an mbarrier -> the TMA loads in that loop."""
        waits: dict[int, list[int]] = {}
        loads: dict[int, list[int]] = {}
        kinds: dict[Landmark | None, dict[int, list[int]]]
        kinds = {Landmark.MBARRIER_WAIT: waits, Landmark.TMA_LOAD: loads}
        code = self.flow.code
        for at in code.having(lambda opcode: landmark(opcode) in kinds):
            found = kinds[landmark(code.instructions[at].opcode)]
            if code.instructions[at].never_runs:
                continue
            if (loop := self._region(at)) is not None:
                found.setdefault(loop, []).append(at)
        return {
            each[0]: tuple(loads[loop])
            for loop, each in waits.items()
            if len(each) == 1 and loop in loads
        }

    def _region(self, at: int) -> int | None:
        return self.regions.loop(self.flow.graph.block(at))

    @cached_property
    def products(self) -> dict[int, _Chain]:
        """The lines of warpgroups' products; nothing where they are not known."""
        return product_lines(self.flow.code, self.ptx)

    @cached_property
    def _callers(self) -> dict[Line, _Chain]:
        return callers(self.flow.code, self.ptx)

    @cached_property
    def _barriers(self) -> dict[int, _Chain]:
        return barrier_lines(self.flow.code, self.ptx)

    @cached_property
    def _waits(self) -> dict[int, _Chain]:
        """The lines of waits for mbarriers, and of the instructions in their blocks that retry."""
        flow, instructions = self.flow, self.flow.code.instructions
        waits = flow.code.having(lambda opcode: landmark(opcode) is Landmark.MBARRIER_WAIT)
        known, found = wait_lines(flow.code, self.ptx) if waits else {}, dict[int, _Chain]()
        for at in waits:
            lines, block = instructions[at].lines, flow.graph.blocks[flow.graph.block(at)]
            if lines and lines[0] in known:
                inside = range(block.first, block.end)
                asks = [n for n in inside if instructions[n].lines[:1] == lines[:1]]
                found |= {n: (known[lines[0]], *instructions[n].lines[1:]) for n in asks}
        right = {*known, *known.values()}
        for at in waits:  # ptxas gives some that test once the line of the code before them
            again = [n for n in waits if flow.graph.block(n) in self._next(at) and n in found]
            if again and right.isdisjoint(instructions[at].lines[:1]):
                found[at] = found[again[0]]
        return found

    def _next(self, at: int) -> list[int]:
        return self.flow.graph.after[self.flow.graph.block(at)]

    @cached_property
    def _loads(self) -> dict[Line, Line]:
        return load_lines(self.flow.code, self.ptx)


def _awaits_product(opcode: str) -> bool:
    return opcode.startswith("WARPGROUP.DEPBAR")
