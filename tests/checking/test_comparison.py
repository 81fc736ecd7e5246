"""Kernels with records against the plain ones, on memory that a test can look into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ikp.checking.comparison import (
    Buffer,
    CheckResult,
    FailedRunError,
    NoCopyRoomError,
    compare,
    disjoint,
)
from ikp.errors import PatchError

pytestmark = pytest.mark.any_pins

IN, OUT = Buffer("x", 0, 64), Buffer("out", 128, 64)


@dataclass
class Memory:
    """A device with little memory; what is launched has run when it is waited for."""

    data: bytearray = field(default_factory=lambda: bytearray(range(256)) * 8)
    top: int = 256
    size: int = 2048
    lent: set[int] = field(default_factory=set)

    def allocate(self, nbytes: int) -> int:
        if self.top + nbytes > self.size:
            raise PatchError("CUDA_ERROR_OUT_OF_MEMORY")
        self.lent.add(self.top)
        self.top += nbytes
        return self.top - nbytes

    def free(self, address: int) -> None:
        self.lent.remove(address)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.data[target : target + nbytes] = self.data[source : source + nbytes]

    def read(self, address: int, nbytes: int) -> bytes:
        return bytes(self.data[address : address + nbytes])


def adding(memory: Memory, *extra: int, noise: Callable[[], int] = lambda: 0) -> Callable[[], None]:
    """Return what runs ``out += x``, which gives other results at each further run."""

    def work() -> None:
        for at in range(64):
            memory.data[128 + at] = (memory.data[128 + at] + memory.data[at]) % 256
        for at in extra:
            memory.data[at] ^= 1
        memory.data[128] = (memory.data[128] + noise()) % 256

    return work


def failing(text: str, *runs: Callable[[], None]) -> Callable[[], None]:
    """Return what runs some times as others do, and then fails."""
    left = iter(runs)

    def work() -> None:
        if (run := next(left, None)) is None:
            raise FailedRunError(text)
        run()

    return work


def test_equal_results_are_told() -> None:
    memory = Memory()
    verdict = compare([IN, OUT], adding(memory), adding(memory), memory)
    assert verdict == CheckResult("2 buffers, 128 bytes, equal bit for bit") and not memory.lent


def test_a_difference_is_told() -> None:
    memory = Memory()
    verdict = compare([IN, OUT], adding(memory), adding(memory, 128 + 7, 128 + 9), memory)
    assert verdict.refused and not memory.lent
    assert verdict.text == (
        "out differs from what the plain kernel writes, in 2 of 64 bytes, first at byte 7"
    )


def test_an_input_that_only_records_change_is_a_difference() -> None:
    memory = Memory()
    verdict = compare([IN, OUT], adding(memory), adding(memory, 3, 128), memory)
    assert verdict.refused and verdict.text.startswith("x differs")
    assert "; out differs" in verdict.text


def test_what_differs_between_plain_runs_can_not_be_compared() -> None:
    memory, runs = Memory(), iter(range(9))
    noisy = adding(memory, noise=lambda: next(runs))
    verdict = compare([IN, OUT], noisy, noisy, memory)
    assert not verdict.refused
    assert verdict.text == (
        "1 buffer, 64 bytes, equal bit for bit; out differs between two runs of the plain kernel, "
        "so it can't be compared"
    )
    assert compare([OUT], noisy, noisy, memory).text.startswith("out differs between")
    assert compare([IN, OUT], noisy, adding(memory, 5), memory).text.startswith("x differs")


def test_a_kernel_without_memory_runs_all_the_same() -> None:
    memory = Memory()
    nothing: list[Buffer] = []
    verdict = compare(nothing, adding(memory), adding(memory), memory)
    assert verdict == CheckResult(
        "ran with records; no parameter points to memory, so nothing could be compared"
    )
    assert compare(nothing, adding(memory), failing("faults"), memory).refused


def test_where_there_is_no_room_nothing_runs() -> None:
    memory = Memory(size=500)
    before = bytes(memory.data[:256])
    with pytest.raises(NoCopyRoomError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        compare([IN, OUT], adding(memory), adding(memory), memory)
    assert memory.data[:256] == before and not memory.lent


@pytest.mark.parametrize("runs", [0, 1])
def test_where_the_plain_kernel_fails_nothing_is_known_of_records(runs: int) -> None:
    memory = Memory()
    plain = failing("ends in E", *[adding(memory)] * runs)
    verdict = compare([IN, OUT], plain, adding(memory), memory)
    assert verdict == CheckResult(
        "not checked: on a copy of its memory, the plain kernel ends in E"
    )


def test_where_records_fail_they_are_refused() -> None:
    memory = Memory()
    verdict = compare([IN, OUT], adding(memory), failing("ends in E"), memory)
    assert verdict == CheckResult("with records it ends in E", refused=True) and not memory.lent


def test_large_buffers_are_compared_a_piece_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ikp.checking.comparison._CHUNK", 16)
    memory = Memory()
    verdict = compare([IN, OUT], adding(memory), adding(memory, 128 + 17, 128 + 40), memory)
    assert verdict.text.endswith("in 2 of 64 bytes, first at byte 17")


def test_buffers_that_overlap_are_one() -> None:
    found = [Buffer("b", 100, 50), Buffer("a", 0, 64), Buffer("c", 32, 80), Buffer("d", 400, 0)]
    assert disjoint(found) == [Buffer("a and c and b", 0, 150)]
    assert disjoint([IN, OUT]) == [IN, OUT]
