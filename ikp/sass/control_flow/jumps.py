"""``Jumps``: branches, calls, returns and exits of one kernel, with targets and conditions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ikp.sass.disassembly.listing import Code, Instruction

_JUMPS = frozenset(("BRA", "JMP", "BRX", "BRXU", "JMX", "JMXU"))
_ENDS = frozenset(("EXIT", "RET", "KILL"))
_ALWAYS = ("", "PT", "UPT")


@dataclass(frozen=True)
class Jumps:
    """The jumps of one kernel. Instructions go by their index."""

    code: Code

    @cached_property
    def leaving(self) -> dict[int, list[tuple[int, str]]]:
        """Jump -> (index, guard) of each successor; the guard is "" for one that always runs."""
        return {
            at: self._ways(at, i)
            for at, i in self._notable
            if i.op in _JUMPS or i.op in _ENDS or i.op == "BSYNC"
        }

    @cached_property
    def calls(self) -> dict[int, list[int]]:
        """Call -> the first instruction of the called function; empty for one outside this code.

        The successor of a call is the next instruction.
        """
        labels = self.code.labels
        return {
            at: [labels[name] for name in i.targets if name in labels]
            for at, i in self._notable
            if i.op == "CALL"
        }

    @cached_property
    def returns(self) -> list[int]:
        """The instructions that end a function, not the kernel."""
        return [at for at, i in self._notable if i.op == "RET"]

    def ends(self, at: int) -> bool:
        """Whether a function or the kernel may end at an instruction."""
        return self.code.instructions[at].op in _ENDS

    @cached_property
    def _notable(self) -> list[tuple[int, Instruction]]:
        return [(at, self.code.instructions[at]) for at in self.code.having(_NOTABLE.match)]

    def _ways(self, at: int, instruction: Instruction) -> list[tuple[int, str]]:
        op, condition = instruction.op, _condition(instruction)
        if op == "BSYNC":
            meeting = self._reconvergence(instruction)
            # Nearly always, its target is the next instruction; one barrier serves many regions.
            if at + 1 in meeting or not meeting:
                return [(at + 1, "")]
            return [(to, "") for to in sorted({*meeting, *([at + 1] if self._moved else [])})]
        if op in _JUMPS:
            taken = [(to, condition) for to in self._targets(instruction)]
            return taken if condition in _ALWAYS else [*taken, (at + 1, inverse(condition))]
        return [] if condition in _ALWAYS else [(at + 1, inverse(condition))]

    def _targets(self, instruction: Instruction) -> list[int]:
        """Return a jump's targets; for an indirect one, all labels that no instruction names."""
        labels = self.code.labels
        known = [labels[name] for name in instruction.targets if name in labels]
        return known or sorted(set(labels.values()) - self._named)

    @cached_property
    def _named(self) -> set[int]:
        labels = self.code.labels
        names = (name for i in self.code.instructions for name in i.targets)
        return {0} | {labels[name] for name in names if name in labels}

    @cached_property
    def _moved(self) -> bool:
        """Whether barriers are copied to and from registers, so that one may be any other."""
        return bool(self.code.of("BMOV"))

    @cached_property
    def _meetings(self) -> list[tuple[str, list[int]]]:
        """(barrier, the instructions at which threads go on that reconverge at it) of each BSSY."""
        labels = self.code.labels
        begun = map(self.code.instructions.__getitem__, self.code.of("BSSY"))
        return [
            (i.operands[0], [labels[name] for name in i.targets if name in labels])
            for i in begun
            if i.operands
        ]

    def _reconvergence(self, sync: Instruction) -> set[int]:
        """Return the instructions at which threads go on behind a BSYNC, from its BSSY.

        Where a kernel runs out of barriers, BMOV keeps some in registers and puts them back into
        others. Then every BSSY counts, of any barrier.
        """
        barrier = sync.operands[0] if sync.operands else ""
        return {to for each, tos in self._meetings if self._moved or each == barrier for to in tos}


_NOTABLE = re.compile(rf"(?:{'|'.join((*_JUMPS, *_ENDS, 'BSYNC', 'CALL'))})\b")


def inverse(guard: str) -> str:
    """Return the opposite of a guard."""
    return guard[1:] if guard.startswith("!") else f"!{guard}"


def _condition(jump: Instruction) -> str:
    """Return the predicate of a jump or an exit: its guard, or an operand; "?" for both at once."""
    if jump.opcode.startswith("BRA.DIV"):
        return "?"
    found = jump.conditions
    if jump.never_runs or not found:
        return jump.guard
    return found[0] if len(found) == 1 else "?"
