"""The memory that a launch reaches: by the words that it passes, and by those in memory."""

from __future__ import annotations

import struct

import pytest

from ikp.backends import reached as module
from ikp.backends.reached import reached
from ikp.checking.comparison import Buffer
from ikp.driver import cuda_memory
from ikp.errors import PatchError

pytestmark = pytest.mark.any_pins

TORCH = 1 << 30
RECORDS = 1 << 31
ARENA = (RECORDS - 4096, 1 << 20)
OWN, HOST = (1 << 32, 4096), (1 << 46, 512)
CONTENTS = {(TORCH, 64): struct.pack("<8Q", 0, OWN[0] + 8, RECORDS, TORCH + 100, *[0] * 4)}


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks of torch's: held, free, held; the program's own; the host's; ikp's."""

    def allocation(pointer: int) -> tuple[int, int]:
        for start, size in (OWN, HOST, ARENA):
            if start <= pointer < start + size:
                return start, size
        raise PatchError("CUDA_ERROR_INVALID_VALUE")

    def read(address: int, nbytes: int) -> bytes:
        return CONTENTS.get((address, nbytes), bytes(nbytes))

    blocks = [(TORCH, 64, True), (TORCH + 64, 1 << 29, False), (RECORDS + 4096, 64, True)]
    monkeypatch.setattr(module, "torch_blocks", lambda: blocks)
    monkeypatch.setattr(cuda_memory, "reachable", lambda word: word >= OWN[0] or word >= ARENA[0])
    monkeypatch.setattr(cuda_memory, "allocation", allocation)
    monkeypatch.setattr(cuda_memory, "read", read)


def found(*words: int, names: dict[int, str] | None = None) -> module.Reached:
    values = [(8 * n, word.to_bytes(8, "little")) for n, word in enumerate(words)]
    return reached(values, [("counter", 1 << 29, 4)], RECORDS, names)


COUNTER = Buffer("counter", 1 << 29, 4)


def test_a_pointer_reaches_its_block_and_what_that_points_to() -> None:
    assert found(TORCH + 8).written == (
        *(COUNTER, Buffer("argument 0", TORCH, 64)),
        Buffer("what argument 0 points to", *OWN),
    )


def test_memory_of_the_host_is_reached_too() -> None:
    assert found(5, HOST[0] + 511).written == (COUNTER, Buffer("argument 1", *HOST))
    assert found(HOST[0] + 512, 1 << 40).written == (COUNTER,)


def test_arguments_have_their_names() -> None:
    assert found(OWN[0], names={OWN[0]: "out"}).written == (COUNTER, Buffer("out", *OWN))


def test_what_is_free_is_scratch_and_not_compared() -> None:
    """And no more of it than a launcher may have lent; in memory, it is an old pointer."""
    made = found(TORCH + 128)
    assert made.written == (COUNTER,)
    assert made.scratch == (Buffer("argument 0", TORCH + 128, 64 << 20),)
    near = TORCH + 64 + (1 << 29) - 256
    assert found(near).scratch == (Buffer("argument 0", near, 256),)
    assert found(TORCH).scratch == ()


def test_where_ikp_records_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(RECORDS, RECORDS + 100) == module.Reached((COUNTER,), ())
    for held in (True, False):
        monkeypatch.setattr(module, "torch_blocks", lambda: [(RECORDS, 1 << 20, held)])  # noqa: B023
        assert found(RECORDS + 64) == module.Reached((COUNTER,), ())
