"""Deflate gives the same bytes wherever it is asked."""

import random
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from ikp.exporters.columns.chunk import RAW, deflated

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize("window_bits", [RAW, 12])
def test_bytes_are_the_same_in_each_thread(window_bits: int) -> None:
    """With isal's function for one piece, a few of these pieces differ."""
    chosen = random.Random(7)
    pieces = []
    for _ in range(3000):
        pattern = bytes(chosen.choice((0, 0, 1, 2)) for _ in range(chosen.choice((3, 5, 8, 13))))
        pieces.append((pattern * 70)[: chosen.choice((24, 32, 48, 64, 96, 200))])
    here = [deflated(each, window_bits) for each in pieces]
    assert [zlib.decompress(each, window_bits) for each in here] == pieces
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda each: deflated(each, window_bits), pieces)) == here
