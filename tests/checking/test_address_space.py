"""Where memory is mapped for buffers at given addresses."""

import pytest

from ikp.checking.address_space import pieces
from ikp.checking.comparison import Buffer

pytestmark = pytest.mark.any_pins

MIB = 1 << 20


@pytest.mark.parametrize(
    ("buffers", "wanted"),
    [
        ([], []),
        ([(5 * MIB, 0)], []),
        ([(5 * MIB, 8)], [(4 * MIB, 6 * MIB)]),
        ([(4 * MIB, 2 * MIB)], [(4 * MIB, 6 * MIB)]),
        ([(4 * MIB, 2 * MIB + 1)], [(4 * MIB, 8 * MIB)]),
        ([(5 * MIB, 8), (4 * MIB, 16)], [(4 * MIB, 6 * MIB)]),
        ([(6 * MIB, 8), (4 * MIB, 16)], [(4 * MIB, 8 * MIB)]),
        ([(0, 9 * MIB), (4 * MIB, 16)], [(0, 10 * MIB)]),
        ([(20 * MIB, 1), (0, 1)], [(0, 2 * MIB), (20 * MIB, 22 * MIB)]),
    ],
)
def test_pieces_hold_all_buffers_and_never_overlap(
    buffers: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    assert pieces([Buffer("x", *each) for each in buffers], 2 * MIB) == wanted
