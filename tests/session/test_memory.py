"""Where segments lie: aligned, zero, apart, and never across a multiple of 4 GiB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.segment import SegmentRows
from ikp.errors import BufferError, PatchError, UsageError
from ikp.session.arena import CHUNK_BYTES, WINDOW, Arena, checked_size
from ikp.session.memory import SHARE
from ikp.session.storage import HostStorage, TorchStorage

torch = pytest.importorskip("torch")

SMALLEST = 224
KIB, MIB = 1 << 10, 1 << 20


@dataclass
class Piece:
    """A tensor that has an address but no memory."""

    address: int
    size: int
    is_cuda: bool = False

    def data_ptr(self) -> int:
        return self.address

    def numel(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> Piece:
        begin, end, _ = part.indices(self.size)
        return Piece(self.address + begin, end - begin)


class Memory:
    """Hands out addresses as told, up to a limit."""

    def __init__(self, addresses: Callable[[int], int], limit: int = 1 << 40) -> None:
        self.addresses, self.limit = addresses, limit
        self.asked: list[int] = []

    def sweep(self) -> None:
        pass

    def zeroed(self, size: int) -> Piece:
        self.asked.append(size)
        if size > self.limit:
            raise torch.OutOfMemoryError(f"tried to allocate {size} bytes")
        return Piece(self.addresses(size), size)


def arena_in(memory: Any, device: Any = "a device") -> Arena:
    return Arena(memory, device)


SIZES = st.one_of(st.integers(SMALLEST, 70 * MIB), st.integers(SMALLEST, abi.MAX_SEGMENT_BYTES))


@given(
    st.lists(SIZES, min_size=1, max_size=8),
    st.lists(st.integers(-(1 << 32), 1 << 32), min_size=1, max_size=24),
    st.sampled_from([1, 16, 512]),
)
@example([CHUNK_BYTES], [-CHUNK_BYTES], 512)  # ends exactly at a border
@example([CHUNK_BYTES], [-16], 16)
@example([48 * MIB], [-32 * MIB], 1)
@example([48 * MIB], [-48 * MIB - 1], 1)
@example([abi.MAX_SEGMENT_BYTES], [-abi.MAX_SEGMENT_BYTES], 1)
@example([32 * MIB, 32 * MIB], [0], 16)  # fills a chunk to its end
def test_no_segment_crosses_or_touches_a_border_or_another_segment(
    sizes: list[int], places: list[int], alignment: int
) -> None:
    chunks: list[range] = []

    def place(size: int) -> int:
        # Chunk i lies near the end of a window of its own.
        around = places[len(chunks) % len(places)] // alignment * alignment
        address = (2 + 4 * len(chunks)) * WINDOW + around
        chunks.append(range(address, address + size))
        return address

    taken: list[range] = []
    arena = arena_in(Memory(place))
    for size in sizes:
        piece = arena.take(checked_size(size))
        taken.append(range(piece.address, piece.address + piece.size))
        assert size <= piece.size < size + abi.ALIGNMENT
    for at in taken:
        assert at.start % abi.ALIGNMENT == 0
        assert at.start // WINDOW == at.stop // WINDOW, "the limit of the last slot must not be 0"
        assert any(chunk.start <= at.start and at.stop <= chunk.stop for chunk in chunks)
    taken.sort(key=lambda at: at.start)
    assert all(one.stop <= other.start for one, other in pairwise(taken))


def test_segments_share_chunks() -> None:
    memory = Memory(lambda size: 1 << 20)
    arena = arena_in(memory)
    for _ in range(64):
        arena.take(MIB)
    assert memory.asked == [CHUNK_BYTES]
    arena.take(MIB)
    assert memory.asked == [CHUNK_BYTES] * 2
    arena.take(3 * CHUNK_BYTES)
    assert memory.asked[2:] == [3 * CHUNK_BYTES]


def test_where_one_large_segment_follows_another_memory_is_got_for_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, free = Memory(lambda size: 1 << 20), [1 << 40]
    monkeypatch.setattr("ikp.session.arena.free_bytes", lambda _: free[0])
    arena, size = arena_in(memory), 30 * MIB
    for _ in range(2 + 2 + 4 + 8 + 8):
        arena.take(size)
    assert memory.asked == [CHUNK_BYTES, CHUNK_BYTES, 4 * size, 8 * size, 8 * size]
    free[0] = SHARE * 3 * size
    arena.take(size)
    assert memory.asked[-1] == 3 * size
    for _ in range(3):
        arena.take(200 * MIB)
    assert memory.asked[6:] == [200 * MIB] * 3, "so large a one is alone"


def test_where_several_do_not_fit_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(lambda size: 1 << 20, limit=150 * MIB)
    monkeypatch.setattr("ikp.session.arena.free_bytes", lambda _: 1 << 40)
    arena = arena_in(memory)
    assert [arena.take(100 * MIB).size for _ in range(2)] == [100 * MIB] * 2
    assert memory.asked == [100 * MIB, 200 * MIB, 100 * MIB]


def test_where_a_chunk_does_not_fit_a_segment_may() -> None:
    memory = Memory(lambda size: 1 << 20, limit=5 * MIB)
    assert arena_in(memory).take(4 * MIB).size == 4 * MIB
    assert memory.asked == [CHUNK_BYTES, 4 * MIB]


@pytest.mark.parametrize("kind", [RuntimeError, torch.OutOfMemoryError, PatchError])
def test_no_memory_is_told_with_size_device_and_remedy(kind: type[Exception]) -> None:
    class Full(Memory):
        def zeroed(self, size: int) -> Piece:
            raise kind("can't allocate memory: 12 MiB free")

    with pytest.raises(BufferError, match=r"100\.0 MiB on cuda:7: .*12 MiB free.*size=") as caught:
        arena_in(Full(lambda size: 0), "cuda:7").take(100 * MIB)
    assert isinstance(caught.value.__cause__, kind)


def test_memory_comes_back_after_a_failure() -> None:
    memory = Memory(lambda size: 1 << 20, limit=KIB)
    arena = arena_in(memory)
    with pytest.raises(BufferError):
        arena.take(MIB)
    memory.limit = 1 << 40
    assert arena.take(MIB).size == MIB


@pytest.mark.parametrize(
    "size", [-1, 0, 1, SMALLEST - 1, abi.MAX_SEGMENT_BYTES + 1, 1 << 40, 1e6, "1 MiB", None]
)
def test_sizes_that_can_not_be_are_refused_with_the_range(size: Any) -> None:
    with pytest.raises(UsageError, match=rf"{size!r} bytes.*224 to 2147483632 bytes"):
        checked_size(size)


def test_segments_are_zero_and_stay_apart() -> None:
    arena = Arena(HostStorage(), torch.device("cpu"))
    pieces = [arena.take(checked_size(size)) for size in (SMALLEST, 1000, 1001, np.int64(4096))]
    for i, piece in enumerate(pieces):
        assert piece.dtype is torch.uint8
        assert not piece.any()
        piece.fill_(i + 1)
    assert [int(piece.unique()) for piece in pieces] == [1, 2, 3, 4]
    again = Arena(HostStorage(), torch.device("cpu")).take(CHUNK_BYTES)
    assert not again.any()


PIECE = 100


class Elsewhere:
    """Bytes of a device that is not here, which were used before."""

    device = torch.device("meta")

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def split(self, size: int) -> list[Elsewhere]:
        return [Elsewhere(self.data[i : i + size]) for i in range(0, len(self), size)]

    def copy_(self, source: Any, *, non_blocking: bool) -> None:
        assert non_blocking and len(source) == len(self)
        self.data[:] = source

    def zero_(self) -> None:
        self.data[:] = 0


@pytest.mark.parametrize("size", [1, PIECE - 1, PIECE + 1, 7 * PIECE + 3])
@pytest.mark.parametrize("pinned", [True, False], ids=["from the host", "no memory to pin"])
def test_what_was_there_before_is_gone(
    size: int, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Elsewhere(np.full(size, 7, np.uint8))
    source = np.zeros(PIECE, np.uint8) if pinned else None
    monkeypatch.setattr(torch, "empty", lambda asked, **_: made if asked == size else None)
    monkeypatch.setattr("ikp.session.storage._PIECE_BYTES", PIECE)
    monkeypatch.setattr("ikp.session.storage._on_host", lambda: source)
    if pinned:
        monkeypatch.delattr(Elsewhere, "zero_")
    assert TorchStorage(made.device).zeroed(size) is made
    assert not made.data.any()


def test_of_the_hosts_own_the_parts_are_zeroed_that_are_named() -> None:
    used = torch.full((40,), 7, dtype=torch.uint8)
    HostStorage().clear(used, [SegmentRows(1, 2), SegmentRows(10, 3, 5, 4)])
    zeros = {1, 2, *(10 + 5 * row + at for row in range(4) for at in range(3))}
    assert {at for at, byte in enumerate(used.tolist()) if not byte} == zeros
    assert HostStorage().read(used, SegmentRows(11, 3, 5, 2)).tolist() == [0, 0, 7, 0, 0, 7]
