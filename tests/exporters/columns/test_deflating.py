"""Deflate gives the same bytes wherever it is asked."""

import io
import random
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from isal import isal_zlib

from ikp.exporters.columns.packing import RAW, deflated
from ikp.exporters.files import packed
from tests.products import one_by_one

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


@pytest.mark.parametrize(("window_bits", "size"), one_by_one([RAW, 12], [600, 70_000]))
def test_bytes_are_the_same_wherever_a_stream_lies(window_bits: int, size: int) -> None:
    """A stream that isal is given at once differs in a few of those that it does not hold back."""
    assert_same_anywhere(
        size,
        lambda content: deflated(content, window_bits),
        lambda packed: zlib.decompress(packed, window_bits),
    )


def test_a_gzip_file_is_the_same_wherever_its_stream_lies() -> None:
    def write(content: bytes) -> bytes:
        file = io.BytesIO()
        with packed(file, "trace.json.gz") as out:
            for part in (content[:3], content[3:5], b"", content[5:]):
                assert out.write(part) == len(part)
        return file.getvalue()

    assert_same_anywhere(40_000, write, lambda packed: zlib.decompress(packed, 31))


def assert_same_anywhere(
    size: int, pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]
) -> None:
    """Pack much that begins otherwise and repeats that, in two places of memory.

    isal has 8,192 numbers for what it has seen, and takes a wrong one for the third byte: what is
    repeated from there on is found only where that happens to be the right one.
    """
    here = [zlib.crc32(pack(content)) for content in beginnings(size)]
    held = [isal_zlib.compressobj() for _ in range(8)]  # in the memory that those above had
    there = [zlib.crc32(pack(content)) for content in beginnings(size)]
    assert held
    assert there == here
    for content in beginnings(size, 20):
        assert unpack(pack(content)) == content


def beginnings(size: int, count: int = 20_000) -> Iterator[bytes]:
    chosen = random.Random(7)
    zeros = bytes(size)
    for _ in range(count):
        again = bytes(chosen.sample(range(10, 250), 4))
        yield (b"\1\2" + again + b"\3" + zeros[:500] + b"\4" + again + zeros)[:size]
