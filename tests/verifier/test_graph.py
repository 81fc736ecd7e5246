"""Where instructions of patched code lead, in code of a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ikp.sass.cubins.instruction import BYTES, WIDE, branch
from ikp.sass.disassembly.listing import parse
from ikp.verifier.checked_flow import HIGH, LOW, NUMBER, OTHER, SIZE, CheckedFlow, constants
from ikp.verifier.declared import Declared
from ikp.verifier.inserted_code import decode
from ikp.verifier.matched_code import MatchedCode, PatchedGraph
from tests.sass.texts import HEAD

pytestmark = pytest.mark.any_pins

NOP, EXIT, BMOV = 0x7918, 0x794D, 0x7355
_HALF = (1 << 64) - 1
_ALONE = 0x000FC00000000000 << 64
"""Control bits: no scoreboard is taken, and none is waited for."""


def bssy(barrier: int, at: int, to: int) -> int:
    """Return a BSSY at a place, whose threads meet at another."""
    return 0x7945 | barrier << 16 | 16 * (to - at - 1) << 32


def bsync(barrier: int) -> int:
    return 0x7941 | barrier << 16


def over_one(guard: int) -> int:
    """Return a BRA over one instruction, by a predicate: plus 8 where it is negated."""
    return branch(WIDE, BYTES) & ~0xF000 | guard << 12


Line = tuple[str, int]
"""An instruction's text, and its 128 bits."""


def matched(
    *lines: Line, inserted: Mapping[int, int] | None = None
) -> tuple[MatchedCode, Declared]:
    """Return code with inserted instructions at some places, and what is declared of it."""
    text, plain = HEAD, [word for _, word in lines]
    for at, (line, word) in enumerate(lines):
        text += f"        /*{16 * at:04x}*/   {line} ;   /* 0x{word & _HALF:016x} */\n"
        text += f"                    /* 0x{word >> 64:016x} */\n"
    (listed,) = parse(text)
    patched, spans = [*plain], []
    for at, word in sorted((inserted or {}).items()):
        patched.insert(at, word)
        spans.append((16 * at, 16 * at + 16))
    old, new = (
        np.array([[word & _HALF, word >> 64] for word in words], np.uint64)
        for words in (plain, patched)
    )
    declared = Declared("k", 255, tuple(spans), None, 3, 0, 16)
    return MatchedCode(listed, old, new, 90, set(), {0}, declared), declared


def graph(*words: int) -> PatchedGraph:
    """Return the graph of code without insertions, whose texts don't matter."""
    code, _ = matched(*(("NOP", word) for word in words))
    return PatchedGraph(code, {}, set())


def faults(lines: Sequence[Line], inserted: Mapping[int, int]) -> list[str]:
    """Return what inserted instructions may do to the kernel."""
    code, declared = matched(*lines, inserted=inserted)
    return [*CheckedFlow(code, {}, set(), declared, 0x210).check()]


def after(words: Sequence[int], at: int) -> set[int]:
    return {*graph(*words).after(at)}


def test_threads_meet_where_the_bssy_of_their_barrier_says() -> None:
    words = [bssy(0, 0, 8), bssy(1, 1, 7), NOP, bsync(0), bsync(1), bsync(2), NOP, NOP, EXIT]
    assert after(words, 2) == {3}
    assert after(words, 3) == {8}
    assert after(words, 4) == {7}
    assert after(words, 5) == {6}, "no BSSY of the kernel sets it"
    assert after(words, 8) == set()


def test_where_barriers_are_moved_threads_may_meet_at_any() -> None:
    """A barrier that is copied back may be another one, or one that all have passed."""
    words = [bssy(0, 0, 8), bssy(1, 1, 7), BMOV, bsync(0), bsync(1), NOP, NOP, NOP, EXIT]
    assert after(words, 3) == {8, 7, 4}
    assert after(words, 4) == {8, 7, 5}


ARRIVES = "WARPGROUP.ARRIVE", 0x79C4 | _ALONE
PRODUCT = "HGMMA.64x8x16.F32 R24, gdesc[UR8], R24, gsb0", 0x75F0 | _ALONE
ENDS = "WARPGROUP.DEPBAR.LE gsb0, 0x0", 0x79C5 | _ALONE
LEAVES = "EXIT", EXIT | _ALONE


def clock(register: int) -> int:
    """Return a CS2R of 32 bits: a record's first instruction."""
    return 0x7805 | register << 16 | 0x5000 << 64 | _ALONE


@pytest.mark.parametrize(("register", "given"), [(24, True), (27, True), (28, False)])
def test_registers_are_given_to_a_product_from_the_arrival_on(register: int, given: bool) -> None:
    """Until it has ended, no other instruction may write them: not before it begins, either."""
    lines = [("NOP", NOP | _ALONE), ARRIVES, PRODUCT, ENDS, ("NOP", NOP | _ALONE), LEAVES]
    for place in range(1, 6):
        found = faults(lines, {place: clock(register)})
        late = [each for each in found if each.endswith(f"uses R{register}, which is in flight")]
        assert bool(late) == (given and 2 <= place < 4), (place, found)


@pytest.mark.parametrize(("register", "needed"), [(4, True), (31, True), (40, False)])
def test_arguments_of_a_call_that_leaves_the_code_are_needed(register: int, needed: bool) -> None:
    """What the callee reads is not known: any of the first 32 that the kernel has set."""
    lines = [
        (f"MOV R{register}, R2", 0x7202 | register << 16 | 2 << 32 | _ALONE),
        ("CALL.ABS.NOINC R6", 0x7343 | 6 << 24 | _ALONE),
        LEAVES,
    ]
    found = faults(lines, {1: clock(register)})
    lost = [each for each in found if f"overwrites R{register}, which original code" in each]
    assert bool(lost) == needed, found


def test_code_may_begin_with_a_branch() -> None:
    made = graph(over_one(0), NOP, NOP, EXIT)
    assert made.blocks[0] == range(1)
    assert {*made.after(0)} == {1, 2}


@pytest.mark.parametrize("between", [False, True])
def test_a_call_that_leaves_the_code_loses_what_inserted_code_has_set(between: bool) -> None:
    call = ("CALL.ABS.NOINC R6", 0x7343 | 6 << 24 | _ALONE)
    lines = [("NOP", NOP | _ALONE), call if between else ("NOP", NOP | _ALONE), LEAVES]
    copy = 0x7202 | 41 << 16 | 40 << 32 | _ALONE  # MOV R41, R40
    found = faults(lines, {1: clock(40) & ~(63 << 116), 3: copy})
    lost = [each for each in found if each.endswith("reads R40, which no inserted one has set")]
    assert bool(lost) == between, found


@pytest.mark.parametrize(("register", "needed"), [("UR4", True), ("UR5", False)])
def test_what_threads_that_stay_need_is_not_overwritten_by_those_that_leave(
    register: str, needed: bool
) -> None:
    """A uniform register is all threads': inserted code that only leaving ones run may not."""
    lines = [
        ("@P0 EXIT", 0x094D | _ALONE),
        ("MOV R2, UR4", 0x7C02 | 2 << 16 | 4 << 32 | _ALONE),
        LEAVES,
    ]
    sets = 0x7C82 | int(register[2:]) << 16 | 0x3F << 32 | _ALONE  # UMOV register, URZ
    found = faults(lines, {0: over_one(8), 1: sets})
    lost = [each for each in found if f"overwrites {register}, which original code" in each]
    assert bool(lost) == needed, found


def test_a_constant_is_the_cells_only_within_it() -> None:
    """What the module has behind it is anything: no offset of a store may be made of that."""
    _, declared = matched(("NOP", NOP | _ALONE), LEAVES)
    made = [
        constants(decode(0x7AB9 | 4 << 16 | bank << 54 | at << 38 | 4 << 73, 90), declared, 0x210)
        for bank, at in ((3, 0), (3, 4), (3, 8), (3, 12), (3, 16), (2, 0))
    ]
    assert made == [[LOW], [HIGH], [SIZE], [NUMBER], [OTHER], [OTHER]]
