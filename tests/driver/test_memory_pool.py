"""Memory of the driver's: allocated, zeroed and read by copies on one stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core.segment import SegmentRows
from ikp.driver import cuda, memory_pool
from ikp.driver.memory_pool import Pool
from ikp.errors import PatchError

SIZE = 4096


class Driver:
    """A CUDA driver whose device is numpy's memory; it looks at what it is given."""

    def __init__(self, missing: str = "") -> None:
        self.missing = missing
        self.memory: dict[int, Any] = {}
        self.calls: list[str] = []
        self.freed: list[int] = []
        self.pinned: list[Any] = []
        self.pending: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        if name == self.missing or not name.startswith("cu"):
            raise AttributeError(name)

        def called(*given: Any) -> int:
            self.calls.append(name)
            answer: Any = getattr(self, f"on_{name.lower()}", lambda *_: 0)
            return answer(*(getattr(each, "_obj", each) for each in given)) or 0

        return called

    def on_cugeterrorname(self, code: int, name: Any) -> None:
        name.value = b"CUDA_ERROR_OUT_OF_MEMORY"

    def on_cudeviceget(self, device: Any, ordinal: int) -> None:
        device.value = 40 + ordinal

    def on_cudeviceprimaryctxretain(self, context: Any, device: Any) -> None:
        assert device.value == 41
        context.value = 7000

    def on_cuctxsetcurrent(self, context: Any) -> None:
        assert context.value == 7000

    def on_cuthreadexchangestreamcapturemode(self, mode: Any) -> None:
        assert mode.value == 2, "relaxed: whoever captures forbids this thread nothing"

    def on_cumempoolcreate(self, pool: Any, wish: Any) -> None:
        assert (wish.allocations, wish.location, wish.device, wish.most) == (1, 1, 41, 0)
        assert ctypes.sizeof(wish) == 88
        pool.value = 500

    def on_custreamcreate(self, stream: Any, flags: int) -> None:
        assert flags == 1, "the default stream does not wait for it"
        stream.value = 600

    def on_cumemallochost_v2(self, address: Any, size: Any) -> None:
        self.pinned.append(np.full(size.value, 9, np.uint8))
        address.value = self.pinned[-1].ctypes.data

    def on_cumemallocfrompoolasync(self, address: Any, size: Any, pool: Any, stream: Any) -> int:
        assert (pool.value, stream.value) == (500, 600)
        if size.value > SIZE:
            return 2
        made = np.full(size.value, 7, np.uint8)
        self.memory[made.ctypes.data] = made
        address.value = made.ctypes.data
        return 0

    def on_cumemfreeasync(self, address: Any, stream: Any) -> None:
        assert stream.value == 600
        self.freed.append(address.value)

    def on_custreamsynchronize(self, stream: Any) -> None:
        assert stream.value == 600
        for each in self.pending:
            each()
        self.pending.clear()

    def on_cumemcpyhtodasync_v2(self, target: Any, source: Any, size: Any, stream: Any) -> None:
        assert stream.value == 600
        self.pending.append(lambda: ctypes.memmove(target.value, source.value, size.value))

    def is_pinned(self, address: int, nbytes: int) -> bool:
        """Return whether the program's calls don't wait for a copy to or from memory."""
        ends = [(each.ctypes.data, each.ctypes.data + each.nbytes) for each in self.pinned]
        return any(begin <= address <= address + nbytes <= end for begin, end in ends)

    def on_cumemcpy2dasync_v2(self, rows: Any, stream: Any) -> None:
        assert stream.value == 600 and ctypes.sizeof(rows) == 128
        sides = []
        for side in (rows.source, rows.target):
            assert side.kind in (1, 2) and side.pitch >= rows.width
            assert (side.host is None) == (side.kind == 2)
            assert side.kind == 2 or self.is_pinned(side.host, side.pitch * rows.height)
            sides.append((side.host if side.kind == 1 else side.device, side.pitch))
        (source, step), (target, stride) = sides

        def copy(width: int = rows.width, height: int = rows.height) -> None:
            for row in range(height):
                ctypes.memmove(target + row * stride, source + row * step, width)

        self.pending.append(copy)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(cuda, "driver", lambda: made)
    return made


parts = st.builds(
    lambda at, width, more, rows: SegmentRows(at, width, width + more, rows),
    st.integers(0, 100),
    st.integers(1, 60),
    st.integers(0, 40),
    st.integers(1, 30),
)


@given(part=parts, zeros=st.sampled_from([16, 64, 1 << 12]), room=st.sampled_from([7, 64, 1 << 12]))
def test_rows_are_read_and_zeroed_and_nothing_else(
    part: SegmentRows, zeros: int, room: int
) -> None:
    driver = Driver()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cuda, "driver", lambda: driver)
        patched.setattr(memory_pool, "_ZEROS_BYTES", zeros)
        patched.setattr(memory_pool, "_LANDING_BYTES", room)
        pool = Pool(1)
        address = pool.allocate(SIZE)
        data = driver.memory[address]
        data[:] = np.arange(SIZE) % 251 + 1
        before = data.copy()
        rows = [
            slice(part.at + row * part.pitch, part.at + row * part.pitch + part.width)
            for row in range(part.rows)
        ]
        assert pool.read(address, part).tolist() == [b for row in rows for b in before[row]]
        pool.clear(address, part)
        assert (data == before).all(), "copies are asynchronous"
        pool.wait()
        for row in rows:
            assert not data[row].any()
            before[row] = 0
        assert (data == before).all()


def test_what_is_allocated_is_there_before_it_is_used(driver: Driver) -> None:
    pool = Pool(1)
    driver.calls.clear()
    address = pool.allocate(100)
    assert driver.calls == ["cuMemAllocFromPoolAsync", "cuStreamSynchronize"]
    pool.write([address + 3], np.arange(5, dtype=np.uint8))
    assert driver.memory[address][:9].tolist() == [7, 7, 7, 0, 1, 2, 3, 4, 7]
    pool.free(address)
    assert driver.freed == [address]
    assert not len(pool.read(address, SegmentRows(0, 0)))


def test_no_call_is_one_that_waits_for_the_programs_kernels(driver: Driver) -> None:
    pool = Pool(1)
    address = pool.allocate(100)
    pool.clear(address, SegmentRows(0, 10, 20, 3))
    pool.read(address, SegmentRows(0, 10))
    pool.free(address)
    waiting = {"cuMemAlloc_v2", "cuMemFree_v2", "cuCtxSynchronize", "cuMemcpyDtoH_v2"}
    assert not waiting & {*driver.calls}


def test_too_little_memory_is_told(driver: Driver) -> None:
    with pytest.raises(PatchError, match=r"could not allocate 4,097 bytes: CUDA_ERROR_OUT_OF_MEM"):
        Pool(1).allocate(SIZE + 1)


def test_a_driver_without_pools_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "driver", lambda: Driver(missing="cuMemPoolCreate"))
    with pytest.raises(PatchError, match="could not make a pool: it has no cuMemPoolCreate"):
        Pool(1)


@given(wanted=st.lists(parts, max_size=12), room=st.sampled_from([64, 512, 1 << 17]))
def test_many_parts_are_read_with_few_waits(wanted: list[SegmentRows], room: int) -> None:
    driver = Driver()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cuda, "driver", lambda: driver)
        patched.setattr(memory_pool, "_LANDING_BYTES", room)
        pool = Pool(1)
        address = pool.allocate(SIZE)
        driver.memory[address][:] = np.arange(SIZE) % 251
        before = driver.calls.count("cuStreamSynchronize")
        found = pool.read_all([(address, part) for part in [*wanted, SegmentRows(5, 0)]])
        waits = driver.calls.count("cuStreamSynchronize") - before
        assert waits == (len(wanted) > 0) or room < 1 << 17
        assert not found.pop().size
        for each, part in zip(found, wanted, strict=True):
            assert each.tolist() == pool.read(address, part).tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda pool, address: pool.read(address, SegmentRows(64, 8)),
        lambda pool, address: pool.read_all([(address, SegmentRows(64, 8))]),
        lambda pool, address: pool.clear(address, SegmentRows(0, 32)),
        lambda pool, address: pool.write([address], np.zeros(32, np.uint8)),
    ],
    ids=["read", "read_all", "clear", "write"],
)
def test_what_was_peeked_stays_whatever_is_called_but_the_next_peek(
    driver: Driver, call: Callable[[Pool, int], object]
) -> None:
    """A ring's copy is kept by headers that are read behind it."""
    pool = Pool(1)
    address = pool.allocate(128)
    driver.memory[address][:] = np.arange(128)
    pool.stage(64)
    calls = driver.calls.count("cuMemAllocHost_v2")
    peeked = pool.peek(address, 32)
    call(pool, address)
    pool.wait()
    assert peeked.tolist() == [*range(32)]
    assert driver.calls.count("cuMemAllocHost_v2") == calls, "to pin memory waits for kernels"
