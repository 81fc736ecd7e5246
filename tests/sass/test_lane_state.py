"""Registers of threads that are walked, addresses made of them, and how often loops go round."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice, product

import numpy as np
import pytest

from ikp.sass.dataflow.lane_state import (
    ASSUMED,
    BLOCK,
    DATA,
    GUESSED,
    LANE,
    WARP,
    LaunchValues,
    Shape,
    Threads,
    Value,
)
from ikp.sass.dataflow.lane_trips import LoopExit, trips_of
from tests.sass.texts import one

pytestmark = pytest.mark.any_pins

SHAPE = Shape((32, 1, 1), (4, 1, 1), warps=1, blocks=1)


def value(number: int, depends: int = 0) -> Value:
    """Return a number in all threads."""
    return Value(np.full((1, 32), number, np.int64), depends)


def threads(**registers: Value) -> Threads:
    return Threads(LaunchValues(SHAPE, {0x210: 0x500, 0x214: 7}), registers)


def test_blocks_that_are_walked_are_the_first_and_others_at_equal_distances() -> None:
    assert Shape(grid=(100, 1, 1), blocks=3, spread=4).numbers.tolist() == [0, 1, 2, 20, 40, 60, 80]
    assert Shape(grid=(10, 10, 1), blocks=3).numbers.tolist() == [0, 1, 2]
    assert Shape(grid=(3, 1, 1), blocks=3, spread=4).numbers.tolist() == [0, 1, 2], "all there are"
    assert Shape(grid=(2, 1, 1), blocks=3).numbers.tolist() == [0, 1]
    assert Shape(grid=(0, 1, 1), blocks=3).numbers.tolist() == [0], "a size that is not known"
    assert Shape(grid=(100, 1, 1), warps=2, blocks=3, spread=4).threads == 7 * 2 * 32


def test_arguments_are_words_at_their_places() -> None:
    shape = Shape(arguments=((0, bytes(range(1, 9))), (12, b"\x07\0")))
    assert shape.parameters(0x210) == {0x210: 0x04030201, 0x214: 0x08070605, 0x21C: 7}


def test_each_thread_has_its_number_in_the_block_and_the_blocks_in_the_grid() -> None:
    launched = LaunchValues(Shape((4, 8, 2), (3, 2, 2), warps=2, blocks=12))
    named = ("SR_TID.X", "SR_TID.Y", "SR_TID.Z", "SR_CTAID.X", "SR_CTAID.Y", "SR_CTAID.Z")
    every = {name: np.broadcast_to(one, (12, 64)).ravel() for name, one in launched.places.items()}
    made = [*zip(*(every[name].tolist() for name in named), strict=True)]
    blocks = [each[::-1] for each in product(range(2), range(2), range(3))]
    inside = [each[::-1] for each in product(range(2), range(8), range(4))]
    assert made == [(*thread, *block) for block in blocks for thread in inside]
    assert every["SR_LANEID"].tolist() == [*range(32)] * 24


@pytest.mark.parametrize(("first", "sizes"), [(0x210, 0), (0x380, 0x360)])
def test_assumed_parameters_are_far_apart_as_pointers_and_aligned_as_sizes(
    first: int, sizes: int
) -> None:
    launched = LaunchValues(Shape((64, 2, 3), (5, 6, 7)), {first + 8: 9}, first)
    assert [launched.constant(sizes + at) for at in range(0, 24, 4)] == [
        (each, False) for each in (64, 2, 3, 5, 6, 7)
    ]
    assert launched.constant(sizes + 24)[1] and launched.constant(first + 8) == (9, False)
    words = [launched.constant(first + at) for at in (0, 4, 16, 20)]
    assert words == [(0x4000, True), (0x1000, True), (0x1104000, True), (0x1000, True)]


def test_parameters_begin_where_hoppers_do_if_it_is_not_said() -> None:
    assert LaunchValues(Shape()).constant(0x220) == (0x1104000, True)


def test_a_write_under_a_guard_keeps_the_value_of_other_threads() -> None:
    odd = Value(np.arange(32)[np.newaxis] % 2, LANE)
    state = threads(R0=value(5, BLOCK), R1=Value(None, WARP))
    state.write("R0", value(9, DATA), odd, guarded=True)
    made = state.state["R0"]
    assert made.bits is not None and made.bits.tolist() == [[5, 9] * 16]
    assert made.depends == BLOCK | DATA | LANE
    state.write("R1", value(9, DATA), odd, guarded=True)
    assert state.state["R1"].bits is not None, "the value that is known"
    assert state.state["R1"].depends == WARP | DATA | LANE | GUESSED
    state.write("R0", Value(None, DATA), odd, guarded=True)
    assert state.state["R0"].bits is made.bits
    state.write("R0", Value(None, DATA), odd, guarded=False)
    assert state.state["R0"] == Value(None, DATA)


ADDRESSES = {
    "LDS R9, [R2]": 0x100,
    "LDS R9, [R2+0x10]": 0x110,
    "LDS R9, [R2+-0x10]": 0xF0,
    "LDS R9, [R2+UR4+0x4]": 0x124,
    "LDS R9, [R5.X4+0x10]": 0x1C,
    "STS [R5.X16], R2": 0x30,
    "LDG.E R9, desc[UR4][R2.64]": 1 << 32 | 0x100,
    "LDG.E R9, desc[UR4][R2.64+0x8]": 1 << 32 | 0x108,
    "LDG.E R9, desc[UR4][R5.U32+0x8]": 0xB,
    "LDG.E R9, desc[UR4][UR6.64]": 3 << 32 | 0x200,
    "LDG.E R9, desc[UR4][R5.U32+UR6]": 3 << 32 | 0x203,
    "LDGSTS.E R5, desc[UR4][R2.64]": 1 << 32 | 0x100,
    "LDGSTS.E [R5], desc[UR4][R2.64]": 1 << 32 | 0x100,
}


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_is_a_sum_of_registers_and_a_number(text: str) -> None:
    registers = {"R2": 0x100, "R3": 1, "R5": 3, "UR4": 0x20, "UR6": 0x200, "UR7": 3}
    state = threads(**{name: value(each, LANE) for name, each in registers.items()})
    made = state.address(one(text))
    assert made.bits is not None and set(made.bits.ravel().tolist()) == {ADDRESSES[text]}
    assert made.depends == LANE


def test_an_address_of_an_unknown_register_is_unknown_but_for_its_high_half() -> None:
    each = one("LDG.E R9, desc[UR4][R2.64]")
    assert threads(R2=Value(None, DATA), R3=value(0, WARP)).address(each) == Value(
        None, DATA | WARP
    )
    low = threads(R2=value(8, WARP), R3=Value(None, DATA)).address(each)
    assert low.bits is not None and set(low.bits.ravel().tolist()) == {8}
    assert low.depends == WARP | DATA
    assert threads().address(one("BAR.SYNC 0x0")) == Value(None, DATA | LANE)
    sum_of = threads(R2=Value(None, DATA), UR4=value(1, WARP)).address(one("LDS R9, [R2+UR4]"))
    assert sum_of == Value(None, DATA | WARP)


READ: dict[str, int | None] = {
    "R2": 0x80000001,
    "-R2": 0x7FFFFFFF,
    "~R2": 0x7FFFFFFE,
    "|R2|": 0x7FFFFFFF,
    "-|R2|": 0x80000001,
    "RZ": 0,
    "PT": 1,
    "!PT": 0,
    "P1": 1,
    "!P1": 0,
    "0x10": 0x10,
    "-0x1": 0xFFFFFFFF,
    "c[0x0][0x210]": 0x500,
    "-c[0x0][0x210]": 0xFFFFFB00,
    "c[0x0][0x0]": 32,
    "R9": None,
    "SR_CLOCKLO": None,
}


@pytest.mark.parametrize("text", READ)
def test_an_operand_is_a_register_with_its_sign_a_number_or_a_constant(text: str) -> None:
    made = threads(R2=value(0x80000001, WARP), P1=value(1)).read(text)
    found = None if made.bits is None else {*made.bits.ravel().tolist()}
    assert found == (None if READ[text] is None else {READ[text]})
    assert READ[text] is not None or made.depends == DATA | LANE


def test_the_register_behind_one_is_the_high_half() -> None:
    state = threads(R3=value(6, WARP))
    for text, number in {"R2": 6, "RZ": 0, "c[0x0][0x210]": 7, "0x5": 0}.items():
        made = state.next(text).bits
        assert made is not None and {*made.ravel().tolist()} == {number}
    assert state.next("c[0x0][0x214]").depends == ASSUMED
    assert state.next("c[0x0][0x210]").depends == 0


HOLDS: dict[str, Callable[[int], bool]] = {
    "LT": lambda n: n < 0,
    "LE": lambda n: n <= 0,
    "GT": lambda n: n > 0,
    "GE": lambda n: n >= 0,
    "EQ": lambda n: n == 0,
    "NE": lambda n: n != 0,
}


def trips(
    leaves: str, first: tuple[int, int], second: tuple[int, int], *, unsigned: bool = False
) -> int | None:
    """Return the iterations of a loop, from both numbers that its test compares in two of them."""
    found = LoopExit(7, None, leaves, unsigned, at_top=True)
    pairs = [{7: (value(each[0]), value(each[1]))} for each in (first, second)]
    made = trips_of(found, *pairs)
    return None if made is None else int(made[0, 0])


@pytest.mark.parametrize("leaves", HOLDS)
def test_trips_are_those_of_counting(leaves: str) -> None:
    for begin, step in product(range(-9, 10), range(-4, 5)):
        counted = (n for n in islice(count(), 40) if HOLDS[leaves](begin + n * step))
        words = [(each + 20 & 0xFFFFFFFF, 20) for each in (begin, begin + step)]
        assert trips(leaves, *words) == next(counted, None), (begin, step)


def test_a_comparison_is_signed_or_not() -> None:
    low, high = 0x7FFFFFF0, 0x80000000
    assert trips("GE", (low, high), (low + 4, high), unsigned=True) == 4
    assert trips("GE", (low, high), (low + 4, high)) == 0, "high is a negative number"


def test_a_comparison_of_64_bits_joins_both_words() -> None:
    found = LoopExit(7, 5, "GE", unsigned=False, at_top=False)
    high = {7: (value(0), value(1))}
    steps = [{**high, 5: (value(0xFFFFFFF0 + n), value(0))} for n in (0, 4)]
    made = trips_of(found, steps[0], steps[1])
    assert made is not None and set(made.ravel().tolist()) == {5}, "4, and the body before the test"
    negative = [
        {7: (value(0xFFFFFFFF), value(0)), 5: (value(2**32 - 4 + n), value(0))} for n in (0, 1)
    ]
    made = trips_of(found, *negative)
    assert made is not None and set(made.ravel().tolist()) == {5}
    for bad in ((Value(None, DATA), value(0)), (value(0), Value(None, DATA))):
        assert trips_of(found, {**high, 5: bad}, steps[1]) is None
        assert trips_of(found, {7: bad, 5: steps[0][5]}, steps[1]) is None
    assert trips_of(found, {5: steps[0][5]}, steps[1]) is None
    assert trips_of(found, high, steps[1]) is None


def test_trips_of_assumed_numbers_and_of_too_many_are_unknown() -> None:
    found = LoopExit(7, None, "GE", unsigned=False, at_top=True)
    for pair in ((value(0, ASSUMED), value(9)), (value(0), value(9, ASSUMED))):
        assert trips_of(found, {7: pair}, {7: (value(1), value(9))}) is None
    most = 1 << 24
    assert trips("GE", (0, most), (1, most)) == most
    assert trips("GE", (0, most + 1), (1, most + 1)) is None


def test_a_guarded_write_depends_on_no_more_than_it_was_made_of() -> None:
    """The register may have held nothing before."""
    made = threads()
    made.write("R4", value(3, BLOCK), value(1, WARP), guarded=True)
    assert made.state["R4"].depends == BLOCK | WARP
    made.write("R4", value(5), value(0), guarded=True)
    assert made.state["R4"].depends == BLOCK | WARP, "it may still be what it was"
    made.write("R4", value(7), value(1), guarded=False)
    assert made.state["R4"].depends == 0
