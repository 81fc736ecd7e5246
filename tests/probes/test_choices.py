"""What probes choose among free registers, and how much they record, rule by rule."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.errors import PatchError
from ikp.probes import patch as patching
from ikp.probes.access_probes import MOST_BYTES, _ground, _layout, _reserved
from ikp.probes.code.access_code import WarpSample, _address
from ikp.probes.code.reserved_registers import FIRST, Cell
from ikp.probes.placement.entry_and_exits import NoRoomError, rows_of, words_of
from ikp.probes.placement.probe_sites import StartSlot
from ikp.probes.placement.register_choice import (
    frame,
    most_registers,
    register_counts,
    resident,
    warps_of,
)
from ikp.probes.placement.scratch_registers import ScratchChooser
from ikp.probes.points.chosen_lines import LineChoice
from ikp.sass.assembly.chips import HOPPER
from ikp.sass.assembly.forms import CLOCK_TIME, UNIFORM_TIME
from ikp.sass.dataflow.free_registers import Spare
from tests.sass.emulate import _TIMES

pytestmark = pytest.mark.any_pins

FREE = Spare(
    tuple(range(4, 24)), tuple(range(4, 24, 2)), (4, 8, 12, 16, 20), (2, 3), (), (), (1, 4)
)


@pytest.mark.parametrize("missing", ["predicates", "scoreboards", "pairs"])
def test_a_header_takes_no_registers_where_something_is_missing(missing: str) -> None:
    lacking = replace(FREE, **{missing: ()})
    assert words_of(lacking) == [] and (missing == "pairs" or rows_of(lacking) == [])


def test_a_header_by_words_takes_a_pair_and_four_others() -> None:
    few = replace(FREE, registers=(4, 5, 6, 9, 10, 13), pairs=(4,), predicates=(2,))
    assert words_of(few) == [4, 6, 9, 10, 13]
    assert words_of(replace(few, registers=(4, 5, 6, 9, 10))) == [], "three others"


def test_a_header_by_rows_takes_a_pair_apart_from_up_to_four_rows() -> None:
    address, *quads = rows_of(FREE)
    assert sorted({address // 4 * 4, *quads}) == [4, 8, 12, 16, 20], "a row less, for the pair"
    address, *quads = rows_of(replace(FREE, pairs=(4, 6, 10), quads=(4,), predicates=(2,)))
    assert (address, quads) == (10, [4])
    assert rows_of(replace(FREE, pairs=(4, 6), quads=(4,))) == [], "the pair is in the only row"
    assert rows_of(replace(FREE, pairs=(4,), quads=())) == []


class Free:
    """Free registers, as far as address probes ask."""

    def __init__(self, unused: tuple[int, ...] = (), spare: Spare = FREE) -> None:
        self.unused_uniform, self.spare, self.reserved = unused, spare, list[int]()

    def reserve(self, bits: Any) -> None:
        self.reserved = [*bits]

    def waited(self, _: int) -> Spare:
        return self.spare


@pytest.mark.parametrize(
    ("unused", "taken"),
    [
        ((3,), (3, None)),
        ((4, 5), (4, None)),
        ((5, 6), (5, None)),
        ((4, 5, 9), (9, 4)),
        ((3, 4, 5), (3, 4)),
        ((2, 6, 7), (2, 6)),
    ],
)
def test_a_warps_number_comes_before_a_pair_for_the_descriptor(
    unused: tuple[int, ...], taken: tuple[int, int | None]
) -> None:
    free: Any = Free(unused)
    assert _reserved(free, "k") == taken
    assert len(free.reserved) == (1 if taken[1] is None else 3)


def test_a_kernel_that_uses_all_its_uniform_registers_has_no_address_probes() -> None:
    free: Any = Free()
    with pytest.raises(PatchError, match="uniform registers"):
        _reserved(free, "k")


def ground(spare: Spare, asked: str = "", kept: tuple[int, int | None] = (9, 6)) -> Any:
    access: Any = SimpleNamespace(conditions=[(int(each), True) for each in asked])
    free: Any = Free(spare=spare)
    return _ground(free, 0, access, kept)


def test_an_address_probe_takes_registers_that_do_not_overlap() -> None:
    made, board = ground(FREE)
    assert board in FREE.scoreboards and made.predicate in FREE.predicates
    taken = [*range(made.quad, made.quad + 4), made.pair, made.pair + 1, made.place]
    assert len({*taken}) == len(taken) and {*taken} <= {*FREE.registers}
    least = replace(FREE, registers=(4, 5, 6, 7, 8, 9, 10), pairs=(4, 6, 8), quads=(4,))
    made, _ = ground(least)
    assert (made.quad, made.pair, made.place) == (4, 8, 10)
    assert isinstance(ground(replace(least, registers=least.registers[:-1])), str)


def test_an_address_probe_lends_a_predicate_that_the_access_does_not_ask() -> None:
    made, _ = ground(FREE, asked="3")
    assert made.predicate == 2
    made, _ = ground(replace(FREE, predicates=()), asked="56")
    assert made.predicate == 4 and made.saved not in (None, made.place)
    few = replace(FREE, registers=(4, 5, 6, 7, 8, 9, 10), pairs=(8,), quads=(4,), predicates=())
    assert isinstance(ground(few), str), "none is left to save the predicate in"


def test_an_address_probe_takes_a_free_pair_for_the_descriptor() -> None:
    spare = replace(FREE, uniform_registers=(5, 7, 9, 12, 13, 14, 15))
    assert ground(spare, kept=(9, None))[0].descriptor == 12
    for uniform in ((), (5, 7, 9), (12, 14)):
        assert isinstance(ground(replace(FREE, uniform_registers=uniform), kept=(9, None)), str)
    assert ground(replace(FREE, scoreboards=())) == "no scoreboard is free there"


@given(st.integers(1, 400), st.integers(1, 1 << 20), st.integers(1, 1024))
def test_tables_of_accesses_fit_and_come_from_some_blocks(
    count: int, blocks: int, threads: int
) -> None:
    sample, tables = _layout(count, (blocks, 1, 1), (threads, 1, 1))
    assert tables.capacity >= 32 and tables.capacity % 32 == 0
    assert count * sample.slots * (16 + 16 * tables.capacity) <= MOST_BYTES
    assert count * (16 + 16 * tables.capacity) <= 1 << 23, "an offset in an instruction"
    assert sample.blocks >= 1 and sample.warps == -(-threads // 32)
    if blocks >= 4 and count * 7 * sample.warps * (16 + 16 * 32) <= MOST_BYTES:
        assert 4 <= sample.blocks <= 8 or tables.capacity < 64


def test_one_block_in_a_power_of_two_records() -> None:
    assert WarpSample((5, 3, 2), (32, 2, 2), 0).blocks == 30
    assert [WarpSample((5, 3, 2), (32, 2, 2), bits).blocks for bits in (1, 2, 5)] == [15, 8, 1]
    assert WarpSample((5, 3, 2), (11, 3, 2), 2).slots == 8 * 3


def test_accesses_that_fit_in_no_table_are_refused() -> None:
    most = 3000
    assert _layout(most, (1000, 1, 1), (32, 1, 1))[0].blocks >= 1
    with pytest.raises(PatchError, match="48 MiB"):
        _layout(most, (1000, 1, 1), (1024, 1, 1))


def test_an_sm_holds_blocks_as_far_as_registers_shared_memory_and_warps_go() -> None:
    assert resident(32, 4, 0, HOPPER) == resident(16, 4, 0, HOPPER) == HOPPER.warps == 64
    assert resident(33, 4, 0, HOPPER) == 48
    assert resident(32, 5, 0, HOPPER) == 60, "whole blocks"
    assert resident(32, 4, 56 << 10, HOPPER) == 16
    assert resident(32, 4, 1 << 20, HOPPER) == 4, "a block that is too large counts as one"


@given(st.integers(16, 255), st.integers(1, 16), st.sampled_from([0, 1 << 10, 40 << 10]))
def test_the_most_registers_leave_room_for_as_many_warps(has: int, warps: int, shared: int) -> None:
    most = most_registers(has, warps, shared, HOPPER)
    room = resident(has, warps, shared, HOPPER)
    assert most >= has and resident(most, warps, shared, HOPPER) == room
    more = [each for each in range(most + 1, 256) if each % 8 == 0 or each == 255]
    assert all(resident(each, warps, shared, HOPPER) < room for each in more)


@given(st.integers(16, 255), st.integers(1, 16))
def test_register_counts_begin_with_the_most_that_cost_no_block(has: int, warps: int) -> None:
    first, *others = register_counts(has, warps, HOPPER)
    blocks = {each: resident(each, warps, 0, HOPPER) for each in (has, first, *others)}
    assert first >= has and (first % 8 == 0 or first >= 248 or first == has)
    assert blocks[first] == blocks[has] or has > 248
    assert [each - first for each in others] == [8, 16][: len(others)]
    assert all(blocks[each] < blocks[first] for each in others)


@given(
    st.sets(st.integers(4, 30), max_size=16),
    st.sampled_from([None, 4]),
    st.booleans(),
    st.booleans(),
)
def test_a_frame_has_registers_of_its_own_that_the_kernel_never_names(
    unused: set[int], warps: int | None, near: bool, owns: bool
) -> None:
    free = Free(tuple(sorted(unused)))
    code = SimpleNamespace(having=lambda _: [], instructions=[])
    room: Any = SimpleNamespace(
        unused_uniform=free.unused_uniform,
        unused_own=tuple(range(90, 99)) if owns else (),
        reserve=free.reserve,
        liveness=SimpleNamespace(flow=SimpleNamespace(code=code), effects=[]),
    )
    made = frame(room, warps, Cell(3, 16), HOPPER, near=near)
    if made is None:
        assert len(unused) < 7 and not owns
        return
    pair = () if made.near or made.lends else (made.descriptor, made.descriptor + 1)
    more = (made.records + 1, made.room + 1, made.header + 1) if made.near else ()
    taken = [*pair, made.records, made.room, made.count, made.header, *made.entered, *more]
    taken += [] if made.high in more else [made.high]
    named = [each for each in taken if each < FIRST]
    assert len({*named}) == len(named) and {*named} <= unused
    assert len({*taken}) == len(taken)
    assert len(made.own) == len(taken) - len(named) == len(free.reserved)
    assert made.near <= (near and warps is not None)
    assert all(each % 2 == 0 for each in (*pair[:1], *((made.records,) if made.near else ())))


def test_warps_are_counted_whole() -> None:
    assert [warps_of(each) for each in (1, 32, 33, 1024)] == [1, 1, 2, 32]


def held(*stalls: int) -> Any:
    """Return a block whose instructions hold the next one back for so many cycles each."""
    controls = SimpleNamespace(stalls=np.array([*stalls, 1]))
    return SimpleNamespace(
        graph=SimpleNamespace(block=lambda _: 0), code=SimpleNamespace(controls=controls)
    )


@given(st.lists(st.integers(1, 15), min_size=1, max_size=8))
def test_a_start_is_there_when_its_copy_is(stalls: list[int]) -> None:
    flow = held(*stalls)
    issued = [1, *(1 + each for each in accumulate(stalls))]
    copied = next((each for each in issued if each >= CLOCK_TIME), CLOCK_TIME)
    left = copied + UNIFORM_TIME - max(copied + 1, sum(stalls))
    expected = {("U", 37): left} if left > 0 else {}
    assert StartSlot(37).late(0, len(stalls), flow) == expected
    left = CLOCK_TIME - sum(stalls)
    expected = {("R", 37): left} if left > 0 else {}
    assert StartSlot(37, own=True).late(0, len(stalls), flow) == expected


def test_latencies_are_those_that_were_measured() -> None:
    assert (_TIMES[0x805], _TIMES[0x2CA]) == (CLOCK_TIME, UNIFORM_TIME)


@pytest.mark.parametrize("own", [None, 8])
@pytest.mark.parametrize("uniform", [None, 5])
@pytest.mark.parametrize("wide", [False, True])
def test_an_address_is_made_of_the_registers_that_the_access_names(
    own: int | None, uniform: int | None, wide: bool
) -> None:
    access: Any = SimpleNamespace(own=own, uniform=uniform, wide=wide)
    steps = _address(access, 20, 21)
    read = {each for step in steps for each in step.reads}
    expected = set() if own is None else {("R", own), *([("R", own + 1)] if wide else [])}
    assert read == expected | (set() if uniform is None else {("U", uniform)})
    assert [each for step in steps for each in step.writes] == [("R", 20), ("R", 21)]


@pytest.mark.parametrize(
    ("code", "lent"),
    [
        ("w", True),  # the kernel waits for the scoreboard
        (".w", True),
        ("n", False),  # it needs a register first
        (".nw", False),
        ("..", False),  # it does neither
        ("ow", True),  # the probe itself
        (".ow", False),  # another probe
    ],
)
def test_a_scoreboard_is_lent_where_the_kernel_waits_for_it_in_time(code: str, lent: bool) -> None:
    chooser: Any = SimpleNamespace(
        end=lambda _: 10 + len(code),
        ours={10 + at for at, each in enumerate(code) if each == "o"},
        waits=lambda at, board: board == 3 and code[at - 10] == "w",
        needs=lambda at, registers: registers == 5 and code[at - 10] == "n",
    )
    assert ScratchChooser._awaited(chooser, 10, 5, 3) == lent


@pytest.mark.parametrize(
    ("own", "work", "others"),
    [
        ((), (4,), True),
        ((), (7,), True),
        ((), (3, 8), False),  # the instructions themselves, and none between
        ((5,), (5, 6), False),  # as many of its own
        ((5,), (5, 6, 7), True),
        ((), (), False),
    ],
)
def test_a_cluster_ends_where_other_lines_work_more(
    own: tuple[int, ...], work: tuple[int, ...], others: bool
) -> None:
    chosen: Any = SimpleNamespace(own={*own}, work={*work})
    before: Any = SimpleNamespace(members=(1, 3))
    after: Any = SimpleNamespace(members=(8, 12))
    assert LineChoice._others_work(chosen, before, after) == others


@pytest.mark.parametrize("step", ["frame", "room"])
@pytest.mark.parametrize(("enough", "taken"), [(32, 32), (40, 40), (48, 48)])
def test_the_first_register_count_that_suffices_is_taken(
    step: str, enough: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def instrumenter(count: int, *_: object) -> Any:
        def insertions(*_: object) -> list[str]:
            if step == "room" and count < enough:
                raise NoRoomError("none")
            return ["made"]

        return SimpleNamespace(insertions=insertions)

    def framed(count: int, *, near: bool) -> Any:
        lacking = step == "frame" and count < enough
        return None if lacking else SimpleNamespace(near=near)

    monkeypatch.setattr(patching, "Instrumenter", instrumenter)
    fixed = {"size": [], "select": False, "chip": HOPPER, "regions": None, "language": "PTX"}
    setting: Any = SimpleNamespace(framed=framed, gather=False, **fixed)
    code = SimpleNamespace(flow=SimpleNamespace(code=SimpleNamespace(name="k")))
    free: Any = SimpleNamespace(liveness=code, counted=lambda count: count + patching.RESERVED)
    count, _, made = patching._instrumented(free, [], [32, 40, 48], setting)
    assert (count, made) == (taken, ["made"])
    count, _, _ = patching._instrumented(free, [], [enough, 255], setting)
    assert count == enough
