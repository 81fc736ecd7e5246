"""Kernels with records against the plain ones, on memory that a test can look into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ikp.errors import PatchError
from ikp.machine.rehearsal import Buffer, Verdict, apart, rehearse

pytestmark = pytest.mark.any_pins

IN, OUT = Buffer("x", 0, 64), Buffer("out", 128, 64)


@dataclass
class Memory:
    """A device with little memory; what is launched has run when it is waited for."""

    data: bytearray = field(default_factory=lambda: bytearray(range(256)) * 8)
    top: int = 256
    size: int = 2048
    lent: set[int] = field(default_factory=set)
    under_way: list[Callable[[], None]] = field(default_factory=list)

    def allocate(self, nbytes: int) -> int:
        if self.top + nbytes > self.size:
            raise PatchError("CUDA_ERROR_OUT_OF_MEMORY")
        self.lent.add(self.top)
        self.top += nbytes
        return self.top - nbytes

    def free(self, address: int) -> None:
        self.lent.remove(address)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.wait()
        self.data[target : target + nbytes] = self.data[source : source + nbytes]

    def read(self, address: int, nbytes: int) -> bytes:
        assert not self.under_way
        return bytes(self.data[address : address + nbytes])

    def wait(self) -> None:
        for each in self.under_way:
            each()
        self.under_way = []

    def launching(self, work: Callable[[], None]) -> Callable[[], None]:
        return lambda: self.under_way.append(work)


def adding(memory: Memory, *extra: int, noise: Callable[[], int] = lambda: 0) -> Callable[[], None]:
    """Return what launches ``out += x``, which gives other results at each further run."""

    def work() -> None:
        for at in range(64):
            memory.data[128 + at] = (memory.data[128 + at] + memory.data[at]) % 256
        for at in extra:
            memory.data[at] ^= 1
        memory.data[128] = (memory.data[128] + noise()) % 256

    return memory.launching(work)


def once(memory: Memory) -> bytes:
    """Return what the memory holds after one plain run."""
    other = Memory()
    adding(other)()
    other.wait()
    return bytes(other.data[:256])


def test_equal_results_are_told_and_stand_as_after_one_run() -> None:
    memory = Memory()
    verdict = rehearse([IN, OUT], adding(memory), adding(memory), memory)
    assert verdict == Verdict("2 buffers, 128 bytes, equal bit for bit")
    assert memory.data[:256] == once(memory) and not memory.lent


def test_a_difference_is_told_and_the_plain_results_stand() -> None:
    memory = Memory()
    verdict = rehearse([IN, OUT], adding(memory), adding(memory, 128 + 7, 128 + 9), memory)
    assert verdict.differs
    assert verdict.text == (
        "out differs from what the plain kernel writes, in 2 of 64 bytes, first at byte 7"
    )
    assert memory.data[:256] == once(memory) and not memory.lent


def test_an_input_that_only_records_change_is_a_difference() -> None:
    memory = Memory()
    verdict = rehearse([IN, OUT], adding(memory), adding(memory, 3, 128), memory)
    assert verdict.differs and verdict.text.startswith("x differs")
    assert "; out differs" in verdict.text


def test_what_differs_between_plain_runs_can_not_be_told() -> None:
    memory, runs = Memory(), iter(range(9))
    noisy = adding(memory, noise=lambda: next(runs))
    verdict = rehearse([IN, OUT], noisy, noisy, memory)
    assert not verdict.differs
    assert verdict.text == (
        "1 buffer, 64 bytes, equal bit for bit; out differs between two runs of the plain kernel, "
        "so nothing can be told of it"
    )
    assert rehearse([IN, OUT], noisy, adding(memory, 5), memory).text.startswith("x differs")


@pytest.mark.parametrize(
    ("buffers", "limit", "size", "words"),
    [
        ([], 1 << 20, 1024, "no argument points to memory"),
        ([IN, OUT], 100, 1024, "128 bytes are more than the 0 MiB"),
        ([IN, OUT], 1 << 20, 500, "CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)
def test_what_can_not_be_checked_has_not_run(
    buffers: list[Buffer], limit: int, size: int, words: str
) -> None:
    memory = Memory(size=size)
    before = bytes(memory.data[:256])
    verdict = rehearse(buffers, adding(memory), adding(memory), memory, limit)
    assert verdict.text.startswith("not checked: ") and words in verdict.text
    assert not verdict.ran and memory.data[:256] == before and not memory.lent


def test_a_launch_that_fails_leaves_no_copy_behind() -> None:
    memory = Memory()

    def fails() -> None:
        raise PatchError("CUDA_ERROR_ILLEGAL_ADDRESS")

    with pytest.raises(PatchError, match="ILLEGAL"):
        rehearse([IN, OUT], adding(memory), fails, memory)
    assert not memory.lent


def test_buffers_that_overlap_are_one() -> None:
    found = [Buffer("b", 100, 50), Buffer("a", 0, 64), Buffer("c", 32, 80), Buffer("d", 400, 0)]
    assert apart(found) == [Buffer("a and c and b", 0, 150)]
    assert apart([IN, OUT]) == [IN, OUT]
