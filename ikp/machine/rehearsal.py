"""Whether a kernel with records computes what it does without, bit for bit: both are launched.

The memory that a launch may write is copied, and put back before each run: plain, plain again,
recorded. The second plain run tells what can't be compared: results that differ anyway, as those
of atomics on floats do. Afterwards the memory holds what one run has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from ikp.errors import PatchError
from ikp.machine import cuda

_LIMIT: Final = 2 << 30
"""Bytes that a launch's buffers may have in all: two copies of them are made on the device."""
_CHUNK = 64 << 20
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of the device that a launch may write."""

    name: str  # of the argument
    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the comparison found."""

    text: str
    differs: bool = False
    ran: bool = True  # the kernel was launched


class Memory(Protocol):
    """The device's memory."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory."""

    def free(self, address: int) -> None:
        """Give memory back."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device, and wait for it."""

    def read(self, address: int, nbytes: int) -> bytes:
        """Return what stands there."""

    def wait(self) -> None:
        """Wait for all that was launched."""


class DeviceMemory:
    """The memory of the current CUDA device, by its driver."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory."""
        return cuda.allocate(nbytes)

    def free(self, address: int) -> None:
        """Give memory back."""
        cuda.free(address)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device, and wait for it."""
        cuda.copy_within(target, source, nbytes, 0)
        cuda.wait()

    def read(self, address: int, nbytes: int) -> bytes:
        """Return what stands there."""
        out = np.empty(nbytes, np.uint8)
        cuda.copy_to_host(out.ctypes.data, address, nbytes)
        return out.tobytes()

    def wait(self) -> None:
        """Wait for all that was launched."""
        cuda.wait()


def rehearse(
    buffers: Sequence[Buffer],
    plain: Callable[[], object],
    recorded: Callable[[], object],
    memory: Memory,
    limit: int = _LIMIT,
) -> Verdict:
    """Launch a kernel plain twice, then with records, on the same memory, and compare.

    Where the results differ, the memory is left as the plain kernel left it; else as the recorded
    one did, which is the same.

    Args:
        buffers: what a launch may write; they don't overlap.
        plain: launches the kernel.
        recorded: launches it with records.
        memory: the device's.
        limit: bytes that the buffers may have in all.
    """
    size = sum(each.nbytes for each in buffers)
    if not buffers:
        return Verdict("not checked: no argument points to memory", ran=False)
    if size > limit:
        return Verdict(
            f"not checked: its {_told(buffers)} are more than the {limit / _MIB:,.0f} MiB that are "
            "copied to compare them",
            ran=False,
        )
    try:
        with _copies(buffers, memory) as before, _copies(buffers, memory) as first:
            return _compared(buffers, plain, recorded, memory, before, first)
    except _NoRoom as error:
        return Verdict(f"not checked: no room for copies of its buffers: {error}", ran=False)


class _NoRoom(Exception):  # noqa: N818 - it is no error of the user's
    """There is no memory for a copy."""


def _compared(
    buffers: Sequence[Buffer],
    plain: Callable[[], object],
    recorded: Callable[[], object],
    memory: Memory,
    before: Mapping[Buffer, int],
    first: Mapping[Buffer, int],
) -> Verdict:
    _run(plain, memory)
    _keep(first, memory)
    _restore(before, memory)
    _run(plain, memory)
    unsteady = [each for each in buffers if _difference(each, first[each], memory)]
    _restore(before, memory)
    _run(recorded, memory)
    steady = [each for each in buffers if each not in unsteady]
    differing = [told for each in steady if (told := _difference(each, first[each], memory))]
    if differing:
        _restore(first, memory)
        return Verdict("; ".join(differing), differs=True)
    equal = f"{_told(steady)}, equal bit for bit"
    if not unsteady:
        return Verdict(equal)
    names = ", ".join(each.name for each in unsteady)
    can_not = f"{names} differs between two runs of the plain kernel, so nothing can be told of it"
    return Verdict(f"{equal}; {can_not}" if steady else can_not)


def _told(buffers: Sequence[Buffer]) -> str:
    size = sum(each.nbytes for each in buffers)
    shown = f"{size / _MIB:,.0f} MiB" if size >= 10 * _MIB else f"{size:,} bytes"
    return f"{len(buffers)} buffer{'s' * (len(buffers) != 1)}, {shown}"


@contextmanager
def _copies(buffers: Sequence[Buffer], memory: Memory) -> Iterator[Mapping[Buffer, int]]:
    """Lend memory with a copy of each buffer."""
    made: dict[Buffer, int] = {}
    memory.wait()
    try:
        for each in buffers:
            try:
                made[each] = memory.allocate(each.nbytes)
            except PatchError as error:
                raise _NoRoom(str(error)) from error
        _keep(made, memory)
        yield made
    finally:
        for address in made.values():
            memory.free(address)


def _keep(copies: Mapping[Buffer, int], memory: Memory) -> None:
    for each, copy in copies.items():
        memory.copy(copy, each.address, each.nbytes)


def _restore(copies: Mapping[Buffer, int], memory: Memory) -> None:
    for each, copy in copies.items():
        memory.copy(each.address, copy, each.nbytes)


def _run(launch: Callable[[], object], memory: Memory) -> None:
    launch()
    memory.wait()


def _difference(buffer: Buffer, copy: int, memory: Memory) -> str:
    """Return in words where a buffer is not its copy; "" where it is."""
    first, different = 0, 0
    for at in range(0, buffer.nbytes, _CHUNK):
        count = min(_CHUNK, buffer.nbytes - at)
        one, other = (memory.read(base + at, count) for base in (buffer.address, copy))
        if one != other:
            left, right = (np.frombuffer(each, np.uint8) for each in (one, other))
            found = np.flatnonzero(left != right)
            first = first if different else at + int(found[0])
            different += len(found)
    if not different:
        return ""
    return (
        f"{buffer.name} differs from what the plain kernel writes, in {different:,} of "
        f"{buffer.nbytes:,} bytes, first at byte {first:,}"
    )


def apart(found: Sequence[Buffer]) -> list[Buffer]:
    """Return buffers with those that overlap made one."""
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
