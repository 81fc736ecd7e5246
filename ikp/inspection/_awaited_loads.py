"""The loads from global memory that a kernel waits for: where, and how narrow they are."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import LoadWait, load_waits
from ikp.sass.disassembly.listing import Line
from ikp.sass.disassembly.opcodes import lane_bytes

_SEVERAL = 4
"""Loads that a compiler would have made one, were they next to each other."""


@dataclass(frozen=True)
class AwaitedLoads:
    """The loads of one kernel, and its waits for them."""

    flow: Flow

    @cached_property
    def waits(self) -> list[LoadWait]:
        """Each wait with its loads."""
        return load_waits(self.flow)

    def narrowest(self, own: Collection[int]) -> int | None:
        """Return the bytes of a lane's narrowest load among several that are under way together.

        So are those with no wait for a load between: a compiler may give each its own scoreboard.
        Of several lines they are of several arrays, and none of them could be one wider load.
        """
        code = self.flow.code.instructions
        runs: dict[tuple[int, tuple[Line, ...]], list[int]] = defaultdict(list)
        for at in sorted(at for at in own if at in self._loads):
            runs[bisect_left(self._places, at), code[at].lines].append(at)
        loads = [at for run in runs.values() if len(run) >= _SEVERAL for at in run]
        return min((lane_bytes(code[at].opcode) for at in loads), default=None)

    @cached_property
    def _places(self) -> list[int]:
        """The waits, in order."""
        return sorted(wait.at for wait in self.waits)

    @cached_property
    def _loads(self) -> frozenset[int]:
        return frozenset(load for wait in self.waits for load in wait.loads)
