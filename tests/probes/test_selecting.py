"""Choices of warps and blocks: who records, and where."""

import math
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ikp
from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import ALL, EVERYTHING, Selection, select
from ikp.errors import PatchError
from ikp.probes import patch as patching
from ikp.probes.code import reserved_registers
from ikp.probes.code.entry_code import CELL_BYTES
from ikp.probes.code.reserved_registers import FIRST, Cell, Frame
from ikp.probes.code.selection_code import SELECTION_BYTES, selection_words
from ikp.probes.patch import patch
from ikp.sass.assembly.chips import CHIPS, HOPPER
from ikp.sass.insertion.insert import PlainCode
from tests.kernels.choices import conditional
from tests.probes.test_loop_exits import NEVER, SEVERAL
from tests.probes.test_sequences import FRAME, NAMES, NOTHING, PAIRS, launch
from tests.sass.assembled import cubin
from tests.sass.compiled import code
from tests.sass.emulate import LANES
from tests.sass.hazards import hazards
from tests.sass.readback import code_of
from tests.sass.whole import run, words_of

pytestmark = pytest.mark.any_pins

SELECTING = replace(FRAME, selection=FRAME.cell.beyond(CELL_BYTES))
WORD = 1 << 32
EITHER = (False, True)


def recorded(chosen, grid, block, *, known=True, turns=1, entered=FRAME.entered, **options):
    """Return the trace of a launch with this choice."""
    warps = -(-math.prod(block) // LANES)
    frame = replace(SELECTING, warps=warps if known else None, entered=entered)
    slots = chosen.count_slots(math.prod(grid), warps, 1)
    size = abi.segment_bytes(slots, 4, header_bytes=abi.DENSE_HEADER_BYTES)
    data, *_ = launch(frame, grid, block, size, turns, chosen=chosen, **options)
    source = SegmentSource(
        *("k", data), clock_rate_hz=5e8, regions=NAMES, selected=True, selection=chosen
    )
    return decode([source])


def assert_chosen(trace, chosen, grid, warps, turns=1):
    """Each chosen warp, and no other, left all its records."""
    blocks = [n for n in range(math.prod(grid)) if chosen.rank(n) is not None]
    both = [(n, warp) for n in blocks for warp in chosen.chosen_warps(warps).tolist()]
    slots = trace.slots
    assert list(zip(slots.block.tolist(), slots.warp.tolist(), strict=True)) == both
    assert slots.finished.all() and (slots.attempted == turns + 2).all()
    names = Counter(
        (slot, trace.regions[region].name)
        for slot, region in zip(trace.events.slot.tolist(), trace.events.region, strict=True)
    )
    each = {"inner": turns, "outer": 1, "whole": 1}
    assert names == {(slot, name): n for slot in range(len(both)) for name, n in each.items()}
    (told,) = trace.launches
    assert (told.grid, told.dropped) == (grid, 0)


masks = st.integers(1, 31) | st.just(ALL)
grids = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 2))
blocks = st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(1, 9) | st.just(ALL))


@given(mask=masks, grid=grids, chosen=blocks, warps=st.integers(1, 5), known=st.booleans())
def test_those_that_are_chosen_record_and_no_others(mask, grid, chosen, warps, known):
    selection = Selection(mask, *chosen)
    block = (warps * LANES, 1, 1)
    trace = recorded(selection, grid, block, known=known)
    assert_chosen(trace, selection, grid, warps)


def test_it_does_so_where_a_part_of_what_is_kept_is_in_threads_registers(monkeypatch):
    own, fitted = (59, 60, 61, 62), type(HOPPER).fitted
    kept = Frame(40, FIRST, FIRST + 1, FIRST + 2, 45, FIRST + 3, cell=Cell(3, 16), own=own)
    monkeypatch.setattr(
        type(HOPPER),
        "fitted",
        lambda self, steps: fitted(self, reserved_registers.fitted_to_threads(steps, own)),
    )
    monkeypatch.setattr(
        sys.modules[__name__], "SELECTING", replace(kept, selection=kept.cell.beyond(CELL_BYTES))
    )
    chosen = Selection(0b101, 1, 2)
    assert_chosen(recorded(chosen, (3, 2, 1), (96, 1, 1), entered=()), chosen, (3, 2, 1), 3)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("entered", [FRAME.entered, ()])
def test_on_every_chip(chip, known, entered):
    chosen = Selection(0b101, 1, 2)
    trace = recorded(chosen, (3, 2, 1), (96, 1, 1), known=known, entered=entered, chip=chip)
    assert_chosen(trace, chosen, (3, 2, 1), 3)


def test_threads_are_counted_in_all_their_dimensions():
    chosen = Selection(0b110, 0, 3)
    assert_chosen(recorded(chosen, (2, 2, 2), (24, 2, 2), known=False), chosen, (2, 2, 2), 3)


def test_a_kernel_that_could_choose_records_all_of_a_session_that_does_not():
    trace = recorded(EVERYTHING, (3, 1, 1), (64, 1, 1))
    assert_chosen(trace, EVERYTHING, (3, 1, 1), 2)


@pytest.mark.parametrize("chosen", [Selection(0b1000), Selection(first_block=9)])
def test_a_launch_with_none_of_the_chosen_says_what_it_was(chosen):
    trace = recorded(chosen, (2, 1, 1), (64, 1, 1))
    assert_chosen(trace, chosen, (2, 1, 1), 2)


@pytest.mark.interp
@pytest.mark.filterwarnings("ignore:.*chosen to record exist")
@pytest.mark.parametrize(
    "options",
    [
        {"blocks": range(1, 9, 4)},
        {"blocks": range(2, 5)},
        {"blocks": range(20, 30)},
        {"warps": [3]},
        {"warps": [0, 3], "blocks": range(0, 1 << 30, 3)},
        {"granularity": 4},
    ],
)
def test_triton_s_interpreter_chooses_the_same(options):
    import torch

    with ikp.profile() as prof:
        buffer = prof.buffer("k", **options)
        conditional[(9,)](torch.zeros(9, dtype=torch.int32), 1, buffer)
    every = {"warps": None, "blocks": None, "granularity": "warp"}
    made = recorded(select(**{**every, **options}), (9, 1, 1), (LANES, 1, 1))
    for name in ("block", "warp", "finished"):
        assert getattr(made.slots, name).tolist() == getattr(prof.trace.slots, name).tolist()
    (one,), (other,) = made.launches, prof.trace.launches
    assert [each for each in one.notes if "chosen" in each] == list(other.notes)


def test_recording_that_is_off_touches_nothing():
    size = abi.segment_bytes(4, 4)
    data, *_ = launch(SELECTING, (2, 1, 1), (64, 1, 1), size, 1, enabled=False)
    assert not data.any()


@given(
    first=st.integers(0, WORD - 1),
    step=st.integers(1, 64) | st.integers(1, (1 << 31) - 1),
    count=st.integers(1, WORD - 1),
    data=st.data(),
)
def test_every_nth_block_is_found_without_a_division(first, step, count, data):
    """Among them those just beside a chosen one, and those that leave 32 bits."""
    chosen = Selection(1, first, step, count)
    words = selection_words(chosen, 4)
    assert 8 * len(words) == SELECTION_BYTES
    (offset, inverse), (shift, most) = ((word % WORD, word // WORD) for word in words[:2])
    near = data.draw(st.integers(0, min(count, (WORD - 1 - first) // step)))
    beside = first + near * step + data.draw(st.integers(-2, 2))
    for block in (beside % WORD, data.draw(st.integers(0, WORD - 1))):
        made = (block * inverse + offset) % WORD
        rank = (made >> shift | made << 32 - shift) % WORD
        assert (rank if rank < most else None) == chosen.rank(block)


@pytest.mark.compiled
@pytest.mark.parametrize("mask", [0b001, 0b110, 0b101, ALL])
def test_a_whole_kernel_records_its_chosen_warps(mask):
    code, turns = cubin(SEVERAL.replace("reqntid 64", "reqntid 96"), "sm_90a"), [3, NEVER, NEVER, 9]
    every, some = (patch(code, "k", untested=True, select=select) for select in EITHER)
    ranges, results = run(every, "k", 3, turns)
    chosen, same = run(some, "k", 3, turns, Selection(mask))
    assert chosen == [each for warp, each in enumerate(ranges) if mask >> warp & 1]
    assert all("iteration" in " ".join(each) for each in ranges) and same == results


@pytest.mark.compiled
@pytest.mark.parametrize("chosen", [Selection(0b1010, 1), Selection(ALL, 2, 3, 2)])
def test_a_whole_kernel_records_its_chosen_blocks(chosen):
    made = patch(cubin(NOTHING, "sm_90a"), "k", block=(32, 4, 1), select=True)
    name, grid, block = "k", (3, 3, 1), (32, 4, 1)
    size = abi.segment_bytes(chosen.count_slots(9, 4), 2)
    words, frame = (
        words_of(made, name),
        replace(SELECTING, cell=Cell(3, 0), selection=Cell(3, CELL_BYTES)),
    )
    data, *_ = launch(frame, grid, block, size, 0, whole=words, chosen=chosen)
    trace = decode([SegmentSource("k", data, clock_rate_hz=5e8, selected=True, selection=chosen)])
    blocks = [n for n in range(9) if chosen.rank(n) is not None]
    both = [(n, warp) for n in blocks for warp in chosen.chosen_warps(4).tolist()]
    assert list(zip(trace.slots.block, trace.slots.warp, strict=True)) == both
    assert trace.slots.finished.all() and len(trace.events) == len(both)


@pytest.mark.compiled
@pytest.mark.parametrize("chosen", [Selection(first_block=1), Selection(ALL, 2, 3, 2)])
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
@pytest.mark.parametrize("block", [(128, 1, 1), (32, 4, 1)])
@pytest.mark.parametrize("flat", [False, True])
def test_blocks_that_are_not_chosen_run_the_kernels_own_code(chosen, chip, block, flat):
    target = chip.name + "a" * (chip.name > "sm_89" or chip.name.startswith("sm_1"))
    options = {"block": block, "flat": flat, "sure": True, "untested": True}
    made = patch(cubin(NOTHING, target), "k", blocks=chosen, **options)
    grid, own = (9, 1, 1) if flat else (3, 3, 1), Frame if made.cell_counts_records else None
    frame = replace(PAIRS if own else SELECTING, cell=Cell(3, 0), selection=Cell(3, CELL_BYTES))
    size = abi.segment_bytes(chosen.count_slots(9, 4), 2)
    words = words_of(made, "k")
    data, *_ = launch(frame, grid, block, size, 0, whole=words, chosen=chosen, chip=chip)
    trace = decode([SegmentSource("k", data, clock_rate_hz=5e8, selected=True, selection=chosen)])
    both = [(n, warp) for n in range(9) if chosen.rank(n) is not None for warp in range(4)]
    assert list(zip(trace.slots.block, trace.slots.warp, strict=True)) == both
    assert trace.slots.finished.all() and len(trace.events) == len(both)


@pytest.mark.compiled
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
@pytest.mark.parametrize("block", [(128, 1, 1), (32, 4, 1)])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("enabled", [True, False])
def test_the_others_leave_when_and_where_they_ran(chip, block, flat, enabled, monkeypatch):
    """Each behind the slots, where its number says; and nothing at all where nothing records."""
    monkeypatch.setattr(patching, "_worth_it", lambda blocks, _: blocks)  # it has no other range
    chosen = Selection(block_step=4, others=True)
    target = chip.name + "a" * (chip.name > "sm_89" or chip.name.startswith("sm_1"))
    options = {"block": block, "flat": flat, "sure": True, "untested": True}
    made = patch(cubin(NOTHING, target), "k", blocks=chosen, **options)
    grid, own = (9, 1, 1) if flat else (3, 3, 1), Frame if made.cell_counts_records else None
    frame = replace(PAIRS if own else SELECTING, cell=Cell(3, 0), selection=Cell(3, CELL_BYTES))
    size = abi.segment_bytes(3 * 4, 2) + 9 * 4 * abi.DENSE_HEADER_BYTES
    words, told = words_of(made, "k"), {"chosen": chosen, "chip": chip, "enabled": enabled}
    data, slot_bytes, _ = launch(frame, grid, block, size, 0, whole=words, **told)
    behind = data[abi.LAUNCH_HEADER_BYTES + 3 * 4 * slot_bytes :].view(abi.DENSE_HEADER)
    came = behind["finish_ns"] != 0
    if not enabled:
        assert not data[: abi.field_offsets(abi.LAUNCH_HEADER)["warps"]].any() and not came.any()
        return
    blocks = np.arange(9).repeat(4)
    assert (came == (blocks % 4 != 0)).all()
    assert not behind[~came].view(np.uint8).any()
    some, rest = behind[came], blocks[came]
    assert (some["sm"] == rest % 5).all() and (some["grid_id"] == 77).all()
    assert not some["attempted"].any() and (some["init_ns"] < some["finish_ns"]).all()
    assert (some["init_clock"] < some["finish_clock"]).all()
    assert len(np.unique(some["init_clock"])) == len(some)
    head = data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]
    assert head["options"] == abi.Option.DENSE | abi.Option.SELECTED | abi.Option.OTHERS
    assert head["slot_bytes"] == slot_bytes


@pytest.mark.compiled
@pytest.mark.parametrize(("detail", "sampled"), [("kernel", False), ("loops", True)])
@pytest.mark.parametrize("others", [False, True])
def test_who_has_no_range_but_the_kernel_leaves_as_much_as_a_samples_others(
    detail, sampled, others
):
    plain, some = cubin(SEVERAL, "sm_90a"), Selection(block_step=7, others=others)
    every, few = (patch(plain, "k", detail=detail, blocks=each) for each in (None, some))
    assert (few.cubin == every.cubin) == (others and not sampled)
    assert few.sample == (some if others and sampled else EVERYTHING) and not few.notes


@pytest.mark.compiled
@pytest.mark.parametrize("detail", ["loops", "ops"])
@pytest.mark.parametrize("others", [False, True])
def test_of_a_whole_kernel_chosen_blocks_record_what_all_do(detail, others):
    plain, turns = cubin(SEVERAL, "sm_90a"), [3, NEVER, NEVER, 9]
    some = Selection(ALL, 1, 3, others=others)
    every, few = (patch(plain, "k", detail=detail, blocks=each) for each in (None, some))
    ranges, results = run(every, "k", 2, turns, blocks=5)
    chosen, same = run(few, "k", 2, turns, some, blocks=5)
    assert chosen == [ranges[2 * 1], ranges[2 * 1 + 1], ranges[2 * 4], ranges[2 * 4 + 1]]
    assert all("iteration" in " ".join(each) for each in chosen) and same == results


@pytest.mark.compiled
@pytest.mark.parametrize(
    "choice",
    [
        {"blocks": Selection(ALL, 3, 6)},
        {"blocks": Selection(block_step=7, others=True)},
        {"select": True},
    ],
)
@pytest.mark.parametrize("name", ["rms_norm", "matmul TMA", "gathered sm_120", "matmul sm_80"])
def test_a_choice_takes_no_more_registers(name, choice):
    """And nothing is written that something in flight still needs."""
    compiled = code(name).compiled
    plain, label = compiled.asm["cubin"], compiled.name
    every, some = (
        patch(plain, label, detail="ops", ptx=compiled.asm["ptx"], untested=True, **each)
        for each in ({}, choice)
    )
    assert (every.registers, every.names) == (some.registers, some.names)
    found = [len(hazards(code_of(each, label))) for each in (plain, some.cubin)]
    assert found[0] * (1 + (some.plain is not None)) == found[1]


@pytest.mark.compiled
def test_where_no_copy_can_be_made_all_run_the_code_with_records(monkeypatch):
    def refuse(*_):
        raise PatchError("it has one table.")

    monkeypatch.setattr(PlainCode, "of", refuse)
    made = patch(cubin(NOTHING, "sm_90a"), "k", block=(128, 1, 1), blocks=Selection(ALL, 3))
    (told,) = made.notes
    assert told.startswith("it has one table. So blocks that are not chosen run the code with")
    assert made.select and made.plain is None and not made.cell_counts_records


@pytest.mark.compiled
@pytest.mark.parametrize("fails", [1, 2])
def test_where_no_copy_can_be_made_no_sample_is_taken(fails, monkeypatch):
    """Neither of the plain code nor of that with headers: all blocks record then, as without."""
    real, made = PlainCode.of, []

    def refuse(*given):
        made.append(given)
        if len(made) == fails:
            raise PatchError("it has one table.")
        return real(*given)

    plain, options = cubin(SEVERAL, "sm_90a"), {"detail": "ops", "block": (64, 1, 1)}
    every = patch(plain, "k", **options)
    monkeypatch.setattr(PlainCode, "of", refuse)
    some = patch(plain, "k", blocks=Selection(block_step=7, others=True), **options)
    assert some.cubin == every.cubin and some.sample == EVERYTHING and not some.select
    assert some.notes == (
        "it has one table. So all its blocks record: no sample is taken of them.",
    )


@given(
    grid=st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 3)),
    step=st.integers(1, 12),
)
def test_a_step_that_misses_places_of_a_grid_is_told(grid, step):
    """With another one, that there are only some is for the edges alone to say."""
    chosen = Selection(block_step=step)
    (told,) = recorded(chosen, grid, (LANES, 1, 1)).launches
    inner = grid[0] if grid[2] == 1 else grid[0] * grid[1]
    inner = 1 if grid[1:] == (1, 1) else inner
    places = {at * step % inner for at in range(inner)}  # that many blocks would come to
    notes = [each for each in told.notes if "A step of" in each]
    assert len(notes) == (len(places) < inner and chosen.count_blocks(math.prod(grid)) > 1)
    for note in notes:
        assert f"they have {len(places)} of its {inner} places" in note
        better = int(note.split("A step of ")[1].split()[0])
        assert len({at * better % inner for at in range(inner)}) == inner
