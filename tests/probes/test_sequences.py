"""What the inserted instructions do, executed word by word, and read by the decoder."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import Kind
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.decoding.losses import tells_loss
from ikp.core.regions import region_id
from ikp.core.segment import EVERYTHING, WORDS_AT
from ikp.probes.code import entry_code, header_code, range_code
from ikp.probes.code.header_code import HeaderValues
from ikp.probes.code.reserved_registers import (
    NEAR,
    PLACES,
    Cell,
    EntryRegisters,
    Frame,
    NearGround,
    Scratch,
)
from ikp.probes.code.selection_code import selection_words
from ikp.probes.patch import patch
from ikp.sass.assembly.assembler import NOP, assemble
from ikp.sass.assembly.chips import CHIPS, HOPPER
from ikp.sass.cubins.cubin import Cubin
from tests.products import pairwise
from tests.sass.assembled import cubin
from tests.sass.emulate import LANES, HazardError, Machine, Warp

pytestmark = pytest.mark.any_pins

BASE = 0x7F42_1000_0000
DESCRIPTOR = 0x1234
OUTER, INNER, WHOLE = 7, 8, 9
NAMES = {OUTER: "outer", INNER: "inner", WHOLE: "whole"}
FRAME = Frame(40, 42, 43, 44, 45, 46, (47, 48, 49), cell=Cell(3, 16))
SCRATCH = Scratch(first=24, last=26, address=20, predicate=3, scoreboard=5)
APART = Scratch(first=14, last=17, address=8, predicate=3, scoreboard=5)
PAIRS = Frame(NEAR, 42, 41, 44, 46, 40, (48, 49, 47), cell=Cell(3, 16), warps=4)
KEPT = 50
GROUND = EntryRegisters(2, 4, (0, *range(30, 41)), (8, 12, 16), predicate=2, scoreboard=5)
NEAR_GROUND = NearGround(0, 52, 6, (8, 12, 16), predicate=2, scoreboard=5)
HELD = False
QUADS = (24, 28)


def launch(
    frame: Frame,
    grid,
    block,
    size,
    turns,
    *,
    enabled=True,
    whole=None,
    chip=HOPPER,
    chosen=EVERYTHING,
):
    """Run a kernel of nothing but records, or a whole one's words; return the segment's bytes."""
    warps = -(-math.prod(block) // LANES)
    slots = chosen.count_slots(math.prod(grid), warps)
    headers = abi.DENSE_HEADER_BYTES * chosen.count_headers(math.prod(grid), warps)
    slot_bytes = size - abi.LAUNCH_HEADER_BYTES - headers
    slot_bytes = slot_bytes // chosen.count_slots(math.prod(grid), warps, 1) & -abi.ALIGNMENT
    places = PLACES
    constants = {(0, places.block + 4 * i): block[i] for i in range(3)}
    constants |= {(0, places.grid + 4 * i): grid[i] for i in range(3)}
    constants |= {(0, places.grid_id): 77, (0, places.descriptor): DESCRIPTOR}
    constants = {(bank, chip.offset_of(at)): word for (bank, at), word in constants.items()}
    constants |= {(0, chip.offset_of(places.descriptor) + 4): 0}
    cell = [BASE & 0xFFFFFFFF, BASE >> 32, slot_bytes, slots if enabled else 0]
    if frame.near:
        cell[2] = (slot_bytes - abi.DENSE_HEADER_BYTES) // abi.RECORD_BYTES - MARGIN
        cell[2] *= enabled or not frame.sure
    if frame.selection is not None:
        cell[2] *= enabled
        words = selection_words(chosen, warps)
        cell += [each >> half & 0xFFFFFFFF for each in words for half in (0, 32)]
    constants |= cell_of(frame.cell, cell, chip)
    machine = Machine(constants, bytearray(size), BASE, chip=chip)
    if chosen != EVERYTHING:
        machine.put(BASE + WORDS_AT, chosen.words().tolist())
    constants |= {(0, 0x28): 0}  # the stack
    code = [assemble(chip.fitted(steps), SCRATCH.scoreboard) for steps in kernel(frame)]
    before, begin, inside, finish, after = code
    threads = np.arange(warps * LANES)
    x, y, z = threads % block[0], threads // block[0] % block[1], threads // block[0] // block[1]
    for number in range(math.prod(grid)):
        at = (number % grid[0], number // grid[0] % grid[1], number // grid[0] // grid[1])
        for warp in range(warps):
            lanes = slice(warp * LANES, (warp + 1) * LANES)
            special = dict(zip((0x21, 0x22, 0x23), (x[lanes], y[lanes], z[lanes]), strict=True))
            special |= {0x25 + i: np.full(LANES, at[i]) for i in range(3)}
            special |= {0x43: np.full(LANES, number % 5), 0: np.arange(LANES)}
            special[0x3A] = 2 * (1 << np.arange(LANES, dtype=np.uint64)) - 1
            running = Warp(machine, special, elected=number % LANES)
            if whole is not None:
                running.run(whole)
                continue
            running.run(before)
            assert not running.reading, "the kernel may overwrite what is still to be read"
            running.run(begin)
            for _ in range(turns):
                running.run(inside)
            running.run(finish)
            running.run(after)
    return np.frombuffer(bytes(machine.memory), np.uint8), slot_bytes, slots


def cell_of(cell: Cell, words, chip=HOPPER):
    """Return the constants by which a kernel is told where to record."""
    begin = cell.offset + (0 if cell.bank else chip.parameters - HOPPER.parameters)
    return {(cell.bank, begin + 4 * i): word for i, word in enumerate(words)}


def began(frame: Frame):
    """Return what stands before the first record."""
    if frame.near:
        read = header_code.read_clocks(24) if HELD else entry_code.entry(frame, 24)
        clocks = 24 if HELD else None
        return [
            *read,
            *entry_code.locate_near(frame, NEAR_GROUND, HeaderValues(WHOLE, margin=MARGIN), clocks),
        ]
    clocks = None if frame.entered else 24
    return [
        *entry_code.entry(frame, 24),
        *entry_code.locate(frame, GROUND, HeaderValues(WHOLE), clocks),
    ]


BY_WORDS = False
TOGETHER = False
MARGIN = 0


def left(frame: Frame):
    """Return what stands before the exit."""
    if BY_WORDS:
        return header_code.leave_by_words(frame, (23, 25, 28, 31), 20, 3)
    if TOGETHER if frame.near else frame.entered and frame.warps:  # both ways, each in some tests
        return header_code.leave_together(frame, QUADS[0], 20, (3, 4))
    return header_code.leave(frame, QUADS, 20, 3)


def kernel(frame: Frame):
    """An outer range whose start is kept, inner ones, and the range of the whole kernel."""
    wait = NOP.after(SCRATCH.busy)
    return (
        began(frame),
        [wait, *range_code.start(18), *range_code.keep(KEPT, 18)],
        [
            wait,
            *range_code.start(SCRATCH.first + 1),
            *range_code.end(frame, SCRATCH, range_code.range_tag(INNER)),
        ],
        [wait, *range_code.end(frame, APART, range_code.range_tag(OUTER), (KEPT, False))],
        [wait, *left(frame)],
    )


@pytest.mark.parametrize(("first", "last"), [(24, 26), (24, 29), (26, 26), (26, 27)])
def test_a_record_can_be_made_in_few_registers(first, last):
    scratch = Scratch(first, last, address=20, predicate=3, scoreboard=5, saved=30)
    data = bytearray(abi.segment_bytes(1, 2))
    cell = (BASE & 0xFFFFFFFF, BASE >> 32, len(data) - abi.LAUNCH_HEADER_BYTES, 1)
    constants = {(0, offset): 1 for offset in range(0, 0x300, 4)}
    constants |= cell_of(FRAME.cell, cell)
    machine = Machine(constants, data, BASE)
    warp = Warp(machine, {number: np.zeros(LANES) for number in range(256)}, elected=7)
    code = [
        began(FRAME),
        [*range_code.start(last), *range_code.keep(KEPT, last)],
        range_code.end(FRAME, scratch, range_code.range_tag(INNER), (KEPT, False)),
    ]
    warp.p[3] = np.arange(LANES) % 3 == 0  # the kernel's
    kept = warp.p.copy()
    for steps, settled in zip(code, ("RUP", "RP", "RP"), strict=True):
        warp.run(assemble(steps, scratch.scoreboard, settled))
    assert (warp.p[3] == kept[3]).all() and warp.ready["P", 3] + 8 <= machine.now
    at = abi.LAUNCH_HEADER_BYTES + abi.DENSE_HEADER_BYTES
    made, more = np.frombuffer(bytes(data[at : at + 32]), abi.RECORD)
    assert made["tag"] == abi.tag(Kind.RANGE, 0, INNER) and not more["tag"]
    assert 1000 < made["start"] < made["end"] < machine.now
    assert set(warp.reading) <= {("R", n) for n in (20, 21, *range(first, last + 4))}


def loaded(data):
    return decode([SegmentSource(data=data, label="k", clock_rate_hz=5e8, regions=NAMES)])


sizes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))
blocks = st.tuples(st.sampled_from([1, 7, 32, 48]), st.integers(1, 3), st.integers(1, 2))
rows = st.tuples(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]).map(lambda n: n * LANES))


@given(
    grid=sizes,
    block=blocks | rows,
    turns=st.integers(0, 3),
    room=st.integers(1, 6),
    near=st.booleans(),
)
def test_every_warp_leaves_its_records(grid, block, turns, room, near):
    made = PAIRS if near and len(block) == 1 else FRAME
    frame = replace(made, warps=block[0] // LANES if len(block) == 1 else None)
    block = (*block, 1, 1)[:3]
    warps = math.prod(grid) * -(-math.prod(block) // LANES)
    size = abi.LAUNCH_HEADER_BYTES + warps * (abi.DENSE_HEADER_BYTES + room * abi.RECORD_BYTES)
    data, _, slots = launch(frame, grid, block, size, turns)

    begin = abi.LAUNCH_HEADER_BYTES + slots * abi.DENSE_HEADER_BYTES
    slot = data[abi.LAUNCH_HEADER_BYTES : begin].view(abi.DENSE_HEADER)
    kept = data[begin:].view(abi.RECORD).reshape(-1, room, 1 << frame.row_bits)
    kept = kept.swapaxes(1, 2).reshape(slots, room)
    assert (slot["finish_ns"] >> 32).all()
    assert (slot["attempted"] == turns + 1).all()
    wanted = [INNER] * turns + [OUTER]
    tags = [abi.tag(Kind.RANGE, 0, region) for region in wanted]
    for row in kept:
        assert row["tag"].tolist() == (tags + [0] * room)[:room]
        assert (np.diff(row["end"][: min(room, len(tags))].astype(int)) >= 0).all()
    assert (kept["start"] <= kept["end"]).all()


@pytest.mark.parametrize(
    ("grid", "block", "warps"), [((2, 2, 2), (40, 2, 1), None), ((3, 1, 1), (64, 1, 1), 2)]
)
@pytest.mark.parametrize("quads", [(8,), (8, 12, 16)])
@pytest.mark.parametrize("entered", [FRAME.entered, ()])
@pytest.mark.parametrize("by_words", [False, True])
def test_the_decoder_reads_what_they_leave(
    grid, block, warps, quads, entered, by_words, monkeypatch
):
    monkeypatch.setattr(sys.modules[__name__], "BY_WORDS", by_words)
    monkeypatch.setattr(sys.modules[__name__], "GROUND", replace(GROUND, quads=quads))
    frame = replace(FRAME, warps=warps, entered=entered)
    slots = math.prod(grid) * -(-math.prod(block) // LANES)
    data, _, _ = launch(frame, grid, block, abi.segment_bytes(slots, 8), 3)

    trace = loaded(data)

    (told,) = trace.launches
    assert (told.grid, told.block) == (grid, block)
    assert told.dropped == 0 and not [note for note in told.notes if tells_loss(note)]
    names = [trace.regions[i].name for i in trace.events.region]
    assert sorted(names) == sorted((["inner"] * 3 + ["outer", "whole"]) * slots)


@pytest.mark.parametrize(
    ("launched", "grid", "quads", "held", "together", "by_words"),
    pairwise(
        [(4, False), (6, True), (3, True), (16, False)],
        [(3, 2, 2), (5, 1, 1)],
        [(8,), (8, 12, 16)],
        *[[False, True]] * 3,
    ),
)
def test_pairs_may_name_addresses(launched, grid, quads, held, together, by_words, monkeypatch):
    warps, sure = launched
    here = sys.modules[__name__]
    for name, value in (("BY_WORDS", by_words), ("TOGETHER", together), ("HELD", held)):
        monkeypatch.setattr(here, name, value)
    monkeypatch.setattr(here, "NEAR_GROUND", replace(NEAR_GROUND, quads=quads))
    slots = warps * math.prod(grid)
    frame = replace(PAIRS, warps=warps, sure=sure, flat=sure and grid[1] == 1)
    data, _, _ = launch(frame, grid, (32 * warps, 1, 1), abi.segment_bytes(slots, 8), 3)

    trace = loaded(data)

    (told,) = trace.launches
    assert (told.grid, told.block) == (grid, (32 * warps, 1, 1))
    assert told.dropped == 0 and not [note for note in told.notes if tells_loss(note)]
    names = [trace.regions[i].name for i in trace.events.region]
    assert sorted(names) == sorted((["inner"] * 3 + ["outer", "whole"]) * slots)
    assert trace.slots.sm.tolist() == [at % 5 for at in range(slots // warps) for _ in range(warps)]


@pytest.mark.parametrize("by_words", [False, True])
@pytest.mark.parametrize("warps", [None, 3])
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_on_every_chip(chip, warps, by_words, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "BY_WORDS", by_words)
    block = (40, 2, 1) if warps is None else (96, 1, 1)
    frame, size = replace(FRAME, warps=warps), abi.segment_bytes(12, 8)
    data, _, _ = launch(frame, (2, 1, 2), block, size, 2, chip=chip)

    trace = loaded(data)

    assert (trace.launches[0].grid, trace.launches[0].block) == ((2, 1, 2), block)
    assert trace.launches[0].dropped == 0
    names = Counter(trace.regions[i].name for i in trace.events.region)
    assert names == {"inner": 24, "outer": 12, "whole": 12}


@pytest.mark.parametrize(
    "frame", [FRAME, replace(PAIRS, warps=2), replace(PAIRS, warps=2, sure=True, flat=True)]
)
def test_a_kernel_whose_recording_is_off_touches_nothing(frame):
    data, *_ = launch(frame, (2, 1, 1), (64, 1, 1), abi.segment_bytes(4, 2), 1, enabled=False)
    assert not data.any()


@pytest.mark.parametrize("frame", [FRAME, PAIRS])
def test_the_emulator_sees_what_issues_too_early(frame):
    words = assemble(began(frame), 5)
    hasty = [word & ~(0xF << 105) | 1 << 105 for word in words]
    deaf = [word & ~(0x3F << 116) for word in words]
    for broken in (hasty, deaf):
        with pytest.raises(HazardError):
            run_entry(broken)
    run_entry(words)


def run_entry(words):
    """Execute an entry for one warp with nowhere to record."""
    constants = {(bank, offset): 1 for bank in (0, 3) for offset in range(0, 0x300, 4)}
    special = {number: np.zeros(LANES) for number in range(256)}
    constants |= cell_of(FRAME.cell.beyond(12), [0])
    Warp(Machine(constants, bytearray(1 << 12), BASE), special).run(words)


NOTHING = ".visible .entry k() { ret; }"


@pytest.mark.parametrize(("grid", "known"), [((6, 1, 1), True), ((1, 3, 2), False)])
@pytest.mark.parametrize("block", [(128, 1, 1), (32, 4, 1)])
def test_a_kernel_that_takes_hardly_any_registers_is_recorded_whole(block, grid, known):
    made = patch(cubin(NOTHING, "sm_90a"), "k", block=block, flat=known, sure=known)
    text = Cubin.read(made.cubin).kernel("k").text.data
    words = [int.from_bytes(text[at : at + 16], "little") for at in range(0, len(text), 16)]
    # The kernel's own load of a stack that it has not: nobody can tell when that is there.
    words = [word & ~0xFFF | 0x918 if word & 0xFF0FFF == 0x10B82 else word for word in words]
    size = abi.segment_bytes(24, made.most or 1)
    frame = replace(PAIRS if made.cell_counts_records else FRAME, cell=Cell(3, 0))
    assert frame.near == (block[1] == 1)
    data, *_ = launch(frame, grid, block, size, 0, whole=words)
    trace = decode(
        [SegmentSource(data=data, label="k", clock_rate_hz=5e8, regions={region_id("k"): "k"})]
    )
    assert len(trace.slots) == 24
    assert trace.slots.finished.all()
    assert [trace.regions[each].name for each in trace.events.region] == ["k"] * 24


@pytest.mark.parametrize("warps", [1, 4, 12])
def test_what_may_be_written_behind_the_last_record_is_the_warps_own(warps, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "MARGIN", 2)
    frame, slots = replace(PAIRS, warps=warps), 3 * warps
    data, _, _ = launch(frame, (3, 1, 1), (32 * warps, 1, 1), _dense(slots, 6), 4)
    trace = loaded(data)
    names = Counter(trace.regions[i].name for i in trace.events.region)
    assert names == {"inner": 4 * slots, "whole": slots}
    assert trace.launches[0].dropped == slots


def _dense(slots, records):
    return abi.segment_bytes(slots, records, header_bytes=abi.DENSE_HEADER_BYTES)


@pytest.mark.parametrize("frame", [FRAME, PAIRS, replace(PAIRS, warps=6), replace(PAIRS, warps=1)])
def test_probes_write_no_uniform_register_but_their_own(frame) -> None:
    ground = (NEAR_GROUND.pair, NEAR_GROUND.pair + 1, frame.room + 1)
    free = {KEPT, *(ground if frame.near else ())}
    for steps in kernel(frame):
        for step in steps:
            assert {number for file, number in step.writes if file == "U"} <= frame.all | free


@pytest.mark.parametrize("frame", [FRAME, PAIRS])
def test_whoever_leaves_needs_one_row(frame) -> None:
    free = {24, 25, 26, 27, 20, *(() if frame.near else (21,))}
    steps = header_code.leave(frame, QUADS[:1], 20, 3)
    assert {number for step in steps for file, number in step.writes if file == "R"} <= free


@pytest.mark.parametrize(
    ("scratch", "stores"),
    [
        (SCRATCH, {(0, 24)}),
        (APART, {(0, 14), (8, 17)}),
        (replace(APART, apart=15, first=19, last=17), {(0, 19), (4, 15), (8, 17)}),
        (replace(APART, apart=15, first=17, last=17), {(0, 17), (4, 15), (8, 17)}),
    ],
)
def test_a_records_words_are_stored_where_the_format_has_them(scratch, stores) -> None:
    for number in range(3):
        steps = range_code._words(FRAME, scratch, range_code.range_tag(INNER), None, number)
        found = {
            ((step.low >> 40 & 0xFFFFFF) - number * abi.RECORD_BYTES, step.low >> 32 & 0xFF)
            for step in steps
            if step.low & 0xFFF == 0x986
        }
        assert found == stores
