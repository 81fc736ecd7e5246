"""Where instructions are, in words: in which loop, after which range."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ikp.inspection._source import lines_of
from ikp.inspection.report import InstructionGroup
from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.disassembly.opcodes import Work, work_of


@dataclass(frozen=True)
class Places:
    """Describes places in one kernel.

    Args:
        flow: the kernel.
        reads: index of each clock read of a record -> name of its region.
        held: index of each instruction in a range -> names of the ranges that hold it.
    """

    flow: Flow
    reads: dict[int, str]
    held: dict[int, tuple[str, ...]]

    def groups(self, at: Iterable[int]) -> tuple[InstructionGroup, ...]:
        """Return instructions by kind and place, in the order of the report's columns."""
        found: dict[tuple[Work, str], list[int]] = defaultdict(list)
        for index in sorted(at):
            work = work_of(self.flow.code.instructions[index])
            found[work, self.place(index)].append(index)
        order = list(Work)
        keys = sorted(found, key=lambda key: (order.index(key[0]), found[key][0]))
        return tuple(
            InstructionGroup(
                work,
                place,
                self.held.get(found[work, place][0], ()),
                tuple(self.flow.code.instructions[index] for index in found[work, place]),
            )
            for work, place in keys
        )

    def place(self, at: int) -> str:
        """Return where an instruction is."""
        loop = self.flow.loop_of(at)
        if inside := self.held.get(at):
            names = " in ".join(f'"{name}"' for name in inside)
            return f"in {names}" + (f", in {self._name(loop)}" if loop else "")
        near = self._near(at, loop)
        if loop:
            return f"in {self._name(loop)}" + (f", {near}" if near else "")
        return self._beside_loops(at) or near or "in the kernel"

    def _near(self, at: int, loop: Loop | None) -> str:
        """Return the range that ends right before, or else starts right after, in this loop."""
        reads = [i for i in self.reads if loop is None or self.flow.loop_of(i) == loop]
        before = max((i for i in reads if i < at), default=None)
        if before is not None:
            return f'after "{self.reads[before]}"'
        after = min((i for i in reads if i > at), default=None)
        return "" if after is None else f'before "{self.reads[after]}"'

    def _beside_loops(self, at: int) -> str:
        """Return which loop with ranges in it follows, or else came before."""
        following = [loop for loop in self._outer if loop.header > at]
        if following:
            return f"before {self._name(min(following, key=lambda loop: loop.header))}"
        passed = [loop for loop in self._outer if max(loop.body) < at]
        return f"after {self._name(max(passed, key=lambda loop: max(loop.body)))}" if passed else ""

    @cached_property
    def _outer(self) -> list[Loop]:
        """The outermost loops that hold records; where none does, no loop says where code is."""
        holding = [loop for loop in self.flow.loops if any(i in loop.body for i in self.reads)]
        return [a for a in holding if not any(a.body < b.body for b in holding)]

    def _name(self, loop: Loop) -> str:
        instructions = self.flow.code.instructions
        jumps = [e.source for e in self.flow.before[loop.header] if e.source in loop.body]
        line = lines_of([instructions[max(jumps)]])
        return f"the loop at {line or hex(instructions[loop.header].address)}"
