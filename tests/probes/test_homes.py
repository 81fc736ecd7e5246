"""Where starts are kept: in registers that nobody needs or touches until the range ends."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from ikp.core import abi
from ikp.core.abi import Kind
from ikp.probes.code import range_code
from ikp.probes.code.reserved_registers import Scratch
from ikp.probes.patch import patch
from ikp.probes.placement.instrumentation import Instrumenter
from ikp.probes.placement.probe_sites import SiteCode, StartSlot, start_slots, written
from ikp.probes.points.probe_points import Level, ProbeRegions, marks
from ikp.probes.points.sese_regions import Point
from ikp.sass.assembly.assembler import assemble, spread
from ikp.sass.assembly.forms import UNIFORM_TIME
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.disassembly.effects import R
from tests.probes.test_sequences import BASE, FRAME, INNER, began, cell_of
from tests.sass.compiled import code, machine
from tests.sass.emulate import LANES, Machine, Warp
from tests.sass.hazards import hazards
from tests.sass.readback import code_of
from tests.sass.test_room import room
from tests.sass.walk import clobbers

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

KERNELS = ("matmul", "attention", "gathered")


def ranges(name: str):
    """Return a kernel's places, and what is free in it."""
    found = machine(name)
    places = ProbeRegions(found.flow, code(name).compiled.asm["ptx"]).at(Level.OPS)
    return [each for each in places if each.end], FreeRegisters(found, 253)


def reached(flow, start: Point, end: Point) -> set[int]:
    """Return the instructions that run after one place and before another: a walk of every way."""
    graph, stop = flow.graph, end.index + end.after
    first = start.index + start.after
    seen: set[int] = set()
    work = [first] if first != stop else []
    while work:
        at = work.pop()
        if at not in seen:
            seen.add(at)
            falls_to_end = end.after and at == end.index
            work += [to for to in flow.after(at) if to != stop or (end.after and not falls_to_end)]
    return {at for at in seen if at < len(graph.code.instructions)}


def test_a_start_that_is_copied_late_is_there_late() -> None:
    """It was read 8 cycles after it was copied, in FlashAttention's backward of LayerNorm."""
    flow = room(*[("NOP", None, None, 0)] * 3).liveness.flow  # each holds back the next for 15
    parts = spread([*range_code.start(6), *range_code.keep(37, 6)], 0, [15], "RP")
    assert [passed for passed, _ in parts] == [0, 1], "it is copied behind the kernel's own"
    assert StartSlot(37).late(0, 1, flow) == {("U", 37): 1 + 15 + UNIFORM_TIME - 17}
    assert StartSlot(37).late(0, 3, flow) == StartSlot(37, own=True).late(0, 1, flow) == {}


@pytest.mark.parametrize("name", KERNELS)
def test_nobody_touches_a_thread_s_own_register_while_a_start_is_in_it(name: str) -> None:
    places, room = ranges(name)
    effects, flow = room.liveness.effects, room.liveness.flow
    made = start_slots(places, [], room)
    taken = {id(each): made[id(each)] for each in places if made[id(each)]}
    assert len(taken) > 4
    inside = {id(each): reached(flow, each.start, each.end) for each in places}
    for place in places:
        home = taken.get(id(place))
        if home is None:
            continue
        assert home.own
        first = place.start.index + place.start.after
        assert not clobbers(flow, first, R.first + home.number)
        for at in inside[id(place)]:
            assert not (effects[at].reads | effects[at].writes) & home.written
            assert not room.free[at, R.first + home.number]


@pytest.mark.parametrize("name", KERNELS)
def test_ranges_in_one_another_have_different_registers(name: str) -> None:
    places, room = ranges(name)
    made, around = start_slots(places, [60], room), list[StartSlot | None]()
    for _, place, opens in marks(places):
        if opens:
            around.append(made[id(place)])
            kept = [each for each in around if each]
            assert len(set(kept)) == len(kept)
        else:
            around.remove(made[id(place)])
    assert StartSlot(60) in made.values()


@pytest.mark.parametrize("name", KERNELS)
def test_records_with_such_starts_overwrite_nothing_in_flight(name: str, monkeypatch) -> None:
    made = code(name).compiled
    before = patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"])
    monkeypatch.setattr(Instrumenter, "_for_starts", property(lambda self: []))
    after = patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"])
    plain, ours = (hazards(code_of(each, made.name)) for each in (made.asm["cubin"], after.cubin))
    assert ours == plain
    assert len(after.names) > len(before.names) // 2


@pytest.mark.parametrize(("first", "last"), [(24, 26), (24, 29), (26, 26), (26, 27)])
def test_a_record_has_the_start_that_a_thread_kept(first: int, last: int) -> None:
    home, scratch = 35, Scratch(first, last, address=20, predicate=3, scoreboard=5)
    data = bytearray(abi.segment_bytes(1, 2))
    cell = (BASE & 0xFFFFFFFF, BASE >> 32, len(data) - abi.LAUNCH_HEADER_BYTES, 1)
    constants = {(0, offset): 1 for offset in range(0, 0x300, 4)}
    constants |= cell_of(FRAME.cell, cell)
    running = Machine(constants, data, BASE)
    warp = Warp(running, {number: np.zeros(LANES) for number in range(256)}, elected=7)
    tag = range_code.range_tag(INNER)
    made = range_code.end(FRAME, scratch, tag, (home, True))
    warp.run(assemble(began(FRAME), scratch.scoreboard))
    warp.run(assemble(range_code.start(home), scratch.scoreboard, "RP"))
    begun = int(warp.r[home][0])
    warp.run(assemble(made, scratch.scoreboard, "RP"))
    wanted = np.array([begun, tag], "<u4")
    words = np.frombuffer(bytes(data), "<u4")
    assert set(wanted.tolist()) <= set(words.tolist())
    assert int(warp.r[home][0]) == begun and ("R", home) not in warp.reading
    assert tag == abi.tag(Kind.RANGE, 0, INNER)


def test_a_probe_writes_no_register_beside_its_own() -> None:
    """That of its predicate where it saves one; what a store reads where it stores."""
    scratch = Scratch(4, 6, 8, predicate=2, scoreboard=0)
    for saved, stores, registers in (
        (None, False, {6}),
        (11, False, {6, 11}),
        (None, True, {4, 5, 6, 7, 8, 9}),
    ):
        run = SimpleNamespace(scratch=replace(scratch, saved=saved), stores=stores)
        found = written(cast("SiteCode", run))
        assert {at for at in range(R.count) if found >> R.first + at & 1} == registers
