"""What waits name, and what may be pending where paths meet."""

from __future__ import annotations

import pytest

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import (
    PRODUCTS,
    Transfer,
    awaited,
    committing,
    counting,
    named,
    under_way,
)
from tests.sass.test_room import controlled
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins


def test_a_wait_names_one_scoreboard_or_a_list() -> None:
    assert named("SB0, 0x2") == counting("SB0, 0x2") == 1
    assert named("SB5, 0x0") == 1 << 5
    assert named("{3,1}") == 1 << 3 | 1 << 1
    assert counting("{3,1}") == 0, "all of them, and not some"


@pytest.mark.parametrize(
    ("opcode", "rest", "places"),
    [
        ("DEPBAR.LE", "SB2, 0x0", 1 << 2),
        ("DEPBAR.LE", "SB2, 0x1", 0),
        ("DEPBAR.LE", "SB2, 0x1, {4,5}", 1 << 4 | 1 << 5),
        ("DEPBAR", "{0,5}", 1 | 1 << 5),
        ("WARPGROUP.DEPBAR.LE", "gsb0, 0x0", 1 << PRODUCTS),
        ("WARPGROUP.DEPBAR.LE", "gsb0, 0x1", 0),
    ],
)
def test_a_counting_wait_ends_what_it_counts_to_zero(opcode: str, rest: str, places: int) -> None:
    assert awaited(opcode, rest) == places


def test_what_is_pending_on_any_path_is_so_where_paths_meet() -> None:
    """Places 0 and 1; a bit of each instruction that is under way."""
    lines = ("@P0 BRA `(.L_x_1)", "NOP", ".L_x_1:", "NOP", "NOP", "@P1 BRA `(.L_x_1)", "NOP")
    flow = Flow(sass(*lines, "EXIT"))
    steps = {
        0: Transfer(0, [(0, 1)]),
        1: Transfer(1, [(0, 2), (1, 4)]),  # waits for the first, and takes others
        2: Transfer(0, [], joins=(0, 1)),
        4: Transfer(0, [(0, 8)]),
        5: Transfer(0b11, []),
    }
    made = [each[:2] for each in under_way(flow, steps)]
    assert made == [
        (0, 0),
        (1, 0),
        (1 | 2 | 8, 4 | 1 | 2 | 8),
        (0, 1 | 2 | 4 | 8),
        (0, 1 | 2 | 4 | 8),
        (8, 1 | 2 | 4 | 8),
        (0, 0),
    ]


def test_copies_are_counted_by_each_scoreboard_that_a_commit_names() -> None:
    """Loads end by their results, stores by the reading of their operands."""
    nothing = ("NOP", 5, 5, 0), ("EXIT", None, None, 0)
    of = lambda *lines: committing(Flow(controlled(*lines, *nothing)))  # noqa: E731
    assert of() == 0
    assert of(("LDGDEPBAR", 0, None, 0)) == 1 << 0
    assert of(("UTMACMDFLUSH", None, 3, 0)) == 1 << 3
    assert of(("LDGDEPBAR", 2, 4, 0), ("LDGDEPBAR", 1, None, 0)) == 1 << 2 | 1 << 4 | 1 << 1
