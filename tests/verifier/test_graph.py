"""Where instructions of patched code lead, in code of a few words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ikp.sass.disassembly.listing import parse
from ikp.verifier.declared import Declared
from ikp.verifier.matched_code import MatchedCode
from ikp.verifier.patched_graph import PatchedGraph
from tests.sass.texts import HEAD

pytestmark = pytest.mark.any_pins

NOP, EXIT, BMOV = 0x7918, 0x794D, 0x7355


def bssy(barrier: int, at: int, to: int) -> int:
    """Return a BSSY at a place, whose threads meet at another."""
    return 0x7945 | barrier << 16 | 16 * (to - at - 1) << 32


def bsync(barrier: int) -> int:
    return 0x7941 | barrier << 16


def graph(*words: int) -> PatchedGraph:
    """Return the graph of code without insertions; no text but the opcode's matters."""
    text = HEAD
    for at, word in enumerate(words):
        text += f"        /*{16 * at:04x}*/   NOP ;   /* 0x{word & (1 << 64) - 1:016x} */\n"
        text += f"                    /* 0x{word >> 64:016x} */\n"
    (listed,) = parse(text)
    rows = np.array([[word & (1 << 64) - 1, word >> 64] for word in words], np.uint64)
    declared = Declared("k", 32, (), None, 3, 0, 16)
    return PatchedGraph(MatchedCode(listed, rows, rows, 90, set(), {0}, declared), {}, set())


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
