"""Scavenged pairs: two uniform registers, free at one probe, for the descriptor of global memory.

Stores name the descriptor of global memory by two uniform registers. Where a kernel leaves no pair
that could hold it throughout, each probe loads it anew, into a pair that is free there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from ikp.errors import PatchError
from ikp.probes.code.reserved_registers import LENT, PLACES
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step
from ikp.sass.dataflow.free_registers import FIRST_UNIFORM, FreeRegisters, Spare
from ikp.sass.disassembly.resources import UR

_FIELD: Final = 0x7F
"""The field of a store's upper half that names the pair."""
_BOTH: Final = frozenset({("U", LENT), ("U", LENT + 1)})


@dataclass(frozen=True, slots=True)
class Lender:
    """Finds scavenged pairs in one kernel.

    Args:
        room: the free registers.
        apart: its basic blocks in which warps may be diverged, and for each of them those in which
            the rest of the warp may be meanwhile.
    """

    room: FreeRegisters
    apart: Mapping[int, AbstractSet[int]]

    def pair(self, index: int, spare: Spare) -> int | None:
        """Return the first register of a pair; None where there is none.

        Where a warp may be diverged, the rest of it must not need the pair, wherever it is.
        Registers that the kernel never names are reserved for other values.

        Args:
            index: the instruction before which the probe is.
            spare: the registers that are free there.
        """
        last = len(self.room.free) - 1
        others = {*range(FIRST_UNIFORM), *self.room.unused_uniform}
        free = set(spare.uniform_registers) - others
        block = self.room.liveness.flow.graph.block(min(index, last))
        if block in self.apart:
            free &= self._unnamed(self.apart[block])
        found = (each for each in free if each % 2 == 0 and each + 1 in free)
        return max(found, default=None)

    def _unnamed(self, blocks: AbstractSet[int]) -> set[int]:
        """Return the registers that are not named, live or in flight in some blocks."""
        flow = self.room.liveness.flow
        if any(flow.graph.jumps.calls.values()):
            return set()  # the rest may be in a function
        rows = flow.instructions(frozenset(blocks))
        named = self.room.liveness.named(rows)
        free = self.room.through(rows).uniform_registers
        return {each for each in free if not named >> UR.first + each & 1}

    def to_leave(self, index: int, spare: Spare) -> int:
        """Return a pair for the code before an EXIT.

        Raises:
            PatchError: there is none.
        """
        pair = self.pair(index, spare)
        if pair is None:
            raise PatchError(
                "it uses nearly all its uniform registers, and where the kernel ends, at "
                f"instruction {index}, no two in a row are free."
            )
        return pair


def lent(steps: Sequence[Step], pair: int | None) -> list[Step]:
    """Return probe code whose stores name a pair, which is loaded behind its first two steps.

    These read a clock, or begin the longest computation; and the kernel's instructions right before
    may read the pair for so long. Where there is no pair, the code stays as it is.
    """
    if pair is None:
        return list(steps)
    loaded = forms.constant(pair, 0, PLACES.descriptor, pair=True)
    named = [_named(each, pair) for each in steps]
    first = next((at for at, each in enumerate(steps) if each.reads & _BOTH), None)
    if first is None:
        return named
    behind = min(first, 2)
    return [*named[:behind], loaded, *named[behind:]]


def _named(step: Step, pair: int) -> Step:
    if not step.reads & _BOTH:
        return step
    reads = step.reads - _BOTH | {("U", pair), ("U", pair + 1)}
    return step._replace(high=step.high & ~_FIELD | pair, reads=reads)
