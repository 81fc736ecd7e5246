"""Control bits: what an instruction waits for, and who waits for it."""

from __future__ import annotations

import numpy as np
import pytest

from ikp.sass.disassembly.listing import Control, parse
from tests.sass.compiled import machine
from tests.sass.texts import HEAD

pytestmark = pytest.mark.any_pins

LOAD = """\
        /*0000*/                   LDG.E R4, desc[UR4][R2.64] ;    /* 0x0000000402047981 */
                                                                   /* 0x000ea8000c1e1900 */
        /*0010*/                   FADD R4, R4, R4 ;               /* 0x0000000404047221 */
                                                                   /* 0x004fe20000000000 */
"""


def test_a_load_takes_a_scoreboard_and_its_reader_waits_for_it() -> None:
    (code,) = parse(HEAD + LOAD)
    load, add = code.instructions
    assert load.word == (0x0000000402047981, 0x000EA8000C1E1900)
    assert load.control == Control(4, False, 2, None, frozenset(), 0)
    assert add.control == Control(1, False, None, None, frozenset({2}), 0)
    assert code.controls.writes.tolist() == [2, 7]
    assert code.controls.waits.tolist() == [0, 4]


def test_words_that_were_not_printed_are_zero() -> None:
    (code,) = parse(HEAD + "        /*0000*/                   EXIT ;\n")
    assert code.instructions[0].word == (0, 0)
    assert code.controls.words.tolist() == [[0, 0]]


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["matmul", "rms_norm"])
def test_every_scoreboard_that_is_waited_for_was_taken(name: str) -> None:
    controls = machine(name).flow.code.controls
    taken = {*controls.writes.tolist(), *controls.reads.tolist()}
    waited = int(np.bitwise_or.reduce(controls.waits))
    assert all(board in taken for board in range(6) if waited >> board & 1)
    assert max(taken) == 7 and len(taken) > 2
