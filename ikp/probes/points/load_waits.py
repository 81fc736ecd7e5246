"""Instructions that wait for loads from global memory, found by scoreboards and wait masks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import Step, awaited, under_way
from ikp.sass.disassembly.control import NONE
from ikp.sass.disassembly.opcodes import Landmark, landmark
from ikp.sass.disassembly.resources import members


@dataclass(frozen=True, slots=True)
class LoadWait:
    """A wait for loads from global memory."""

    at: int  # the instruction that waits before it is issued
    mask: int  # the scoreboards of those loads, a bit each
    loads: tuple[int, ...]  # the loads that it may wait for


def load_waits(flow: Flow) -> list[LoadWait]:
    """Return the first waits for each load, on every path from it."""
    loads = flow.code.having(lambda opcode: landmark(opcode) is Landmark.LOAD)
    loads = [at for at in loads if not flow.code.instructions[at].never_runs]
    if not loads:
        return []
    states = under_way(flow, _steps(flow, loads))
    waits = flow.code.controls.waits.tolist()
    found = []
    for at in (at for at, mask in enumerate(waits) if mask):
        boards = [b for b, bits in enumerate(states[at][:-1]) if bits and waits[at] >> b & 1]
        if boards:
            bits = reduce(or_, (states[at][board] for board in boards))
            held = tuple(loads[n] for n in members(bits))
            found.append(LoadWait(at, sum(1 << board for board in boards), held))
    return found


def _steps(flow: Flow, loads: list[int]) -> dict[int, Step]:
    """Return, for each load and each wait, its effect on the loads under way (a bit each)."""
    controls, code = flow.code.controls, flow.code
    writes = controls.writes.tolist()
    takes = {at: [(writes[at], 1 << n)] for n, at in enumerate(loads) if writes[at] != NONE}
    ends = {at: int(controls.waits[at]) for at in np.flatnonzero(controls.waits).tolist()}
    for at in code.having(lambda opcode: opcode.startswith("DEPBAR")):
        instruction = code.instructions[at]
        ends[at] = ends.get(at, 0) | awaited(instruction.opcode, instruction.rest)
    return {at: Step(ends.get(at, 0), takes.get(at, [])) for at in {*ends, *takes}}
