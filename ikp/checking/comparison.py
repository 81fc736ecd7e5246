"""A/B comparison: a kernel runs plain twice, then with records, and memory is compared bit for bit.

The memory that a launch may write is copied, and put back before each run: plain, plain again,
recorded. The second plain run shows which buffers can't be compared: results that differ anyway, as
those of atomics on floats do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from ikp.errors import PatchError

_CHUNK: Final = 16 << 20
_MIB: Final = 1 << 20
_WITHOUT_MEMORY: Final = "no parameter points to memory, so nothing could be compared"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of the device that a launch may write."""

    name: str  # of the argument
    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of an A/B check."""

    text: str
    refused: bool = False  # the kernel with records must not run


class FailedRunError(Exception):
    """A kernel that faulted, or did not end in time; its text is a predicate: "has not ended"."""


class NoCopyRoomError(Exception):
    """There is no memory for a copy."""


class MemoryCalls(Protocol):
    """The device's memory."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory."""

    def free(self, address: int) -> None:
        """Free memory."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device, and wait for it."""

    def read(self, address: int, nbytes: int) -> bytes:
        """Return what the memory holds."""


def compare(
    buffers: Sequence[Buffer],
    plain: Callable[[], object],
    recorded: Callable[[], object],
    memory: MemoryCalls,
) -> CheckResult:
    """Run a kernel plain twice, then with records, on the same memory, and compare.

    Args:
        buffers: the memory that a launch may write; they don't overlap.
        plain: runs the kernel, until it has ended.
        recorded: runs it with records, until it has ended.
        memory: the device's.

    Raises:
        NoCopyRoomError: there is no memory for two copies of the buffers.
    """
    with copies(buffers, memory) as before, copies(buffers, memory) as first:
        try:
            plain()
            _keep(first, memory)
            restore(before, memory)
            plain()
        except FailedRunError as error:
            return CheckResult(f"not checked: on a copy of its memory, the plain kernel {error}")
        unsteady = [each for each in buffers if _difference(each, first[each], memory)]
        restore(before, memory)
        try:
            recorded()
        except FailedRunError as error:
            return CheckResult(f"with records it {error}", refused=True)
        return _compared(buffers, unsteady, first, memory)


def _compared(
    buffers: Sequence[Buffer],
    unsteady: Sequence[Buffer],
    first: Mapping[Buffer, int],
    memory: MemoryCalls,
) -> CheckResult:
    steady = [each for each in buffers if each not in unsteady]
    if differing := [text for each in steady if (text := _difference(each, first[each], memory))]:
        return CheckResult("; ".join(differing), refused=True)
    if not buffers:
        return CheckResult(f"ran with records; {_WITHOUT_MEMORY}")
    equal = f"{size_of(steady)}, equal bit for bit"
    if not unsteady:
        return CheckResult(equal)
    names = ", ".join(each.name for each in unsteady)
    unknown = f"{names} differs between two runs of the plain kernel, so it can't be compared"
    return CheckResult(f"{equal}; {unknown}" if steady else unknown)


def size_of(buffers: Sequence[Buffer]) -> str:
    """Return the number of buffers, and their size, in words."""
    size = sum(each.nbytes for each in buffers)
    shown = f"{size / _MIB:,.0f} MiB" if size >= 10 * _MIB else f"{size:,} bytes"
    return f"{len(buffers)} buffer{'s' * (len(buffers) != 1)}, {shown}"


@contextmanager
def copies(buffers: Sequence[Buffer], memory: MemoryCalls) -> Iterator[Mapping[Buffer, int]]:
    """Lend memory with a copy of each buffer."""
    made: dict[Buffer, int] = {}
    try:
        for each in buffers:
            try:
                made[each] = memory.allocate(each.nbytes)
            except PatchError as error:
                raise NoCopyRoomError(str(error)) from error
        _keep(made, memory)
        yield made
    finally:
        for address in made.values():
            memory.free(address)


def _keep(copies: Mapping[Buffer, int], memory: MemoryCalls) -> None:
    for each, copy in copies.items():
        memory.copy(copy, each.address, each.nbytes)


def restore(copies: Mapping[Buffer, int], memory: MemoryCalls) -> None:
    """Put back what buffers held when their copies were made."""
    for each, copy in copies.items():
        memory.copy(each.address, copy, each.nbytes)


def _difference(buffer: Buffer, copy: int, memory: MemoryCalls) -> str:
    """Return in words where a buffer differs from its copy; "" where it does not."""
    first, different = 0, 0
    for at in range(0, buffer.nbytes, _CHUNK):
        count = min(_CHUNK, buffer.nbytes - at)
        one, other = (memory.read(base + at, count) for base in (buffer.address, copy))
        if one != other:
            apart = _exclusive_or(one, other)
            first = first if different else at + count - len(apart.lstrip(b"\0"))
            different += count - apart.count(0)
    if not different:
        return ""
    return (
        f"{buffer.name} differs from what the plain kernel writes, in {different:,} of "
        f"{buffer.nbytes:,} bytes, first at byte {first:,}"
    )


def _exclusive_or(one: bytes, other: bytes) -> bytes:
    left, right = (int.from_bytes(each, "big") for each in (one, other))
    return (left ^ right).to_bytes(len(one), "big")


def disjoint(found: Sequence[Buffer]) -> list[Buffer]:
    """Return buffers, overlapping ones merged."""
    made: list[Buffer] = []
    for each in sorted(found, key=lambda buffer: buffer.address):
        if made and each.address < made[-1].address + made[-1].nbytes:
            made[-1] = _joined(made[-1], each)
        elif each.nbytes:
            made.append(each)
    return made


def _joined(one: Buffer, other: Buffer) -> Buffer:
    end = max(one.address + one.nbytes, other.address + other.nbytes)
    names = dict.fromkeys([*one.name.split(" and "), other.name])
    return Buffer(" and ".join(names), one.address, end - one.address)
