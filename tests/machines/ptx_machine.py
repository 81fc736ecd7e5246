"""A machine that runs PTX on the CPU: the subset that ikp generates and small kernels need.

Threads run one after another, each from start to end, so a program may not wait for another thread.
The machine is stricter than a GPU: reading an undefined register, an address outside the given
memory, a misaligned access, or two threads writing one byte is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.machines.ptx_opcodes import Step, compile_instruction
from tests.machines.ptx_program import FaultError, Program

WARP = 32
MAX_THREADS = 1024  # of a block
Dim = tuple[int, int, int]


class Memory:
    """Byte arrays at chosen addresses, and who wrote each byte last."""

    def __init__(self) -> None:
        self._areas: list[tuple[int, NDArray[np.uint8], NDArray[np.int64]]] = []

    def map(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Return zeroed memory at ``address``."""
        data, writer = np.zeros(nbytes, np.uint8), np.full(nbytes, -1, np.int64)
        self._areas.append((address, data, writer))
        return data

    def load(self, address: int, nbytes: int) -> int:
        """Return the little-endian value at ``address``."""
        data, _, at = self._find(address, nbytes)
        return int.from_bytes(data[at : at + nbytes].tobytes(), "little")

    def store(self, address: int, value: int, nbytes: int, thread: int) -> None:
        """Write a little-endian value on behalf of ``thread``."""
        data, writer, at = self._find(address, nbytes)
        others = set(writer[at : at + nbytes].tolist()) - {-1, thread}
        if others:
            raise FaultError(f"threads {others} and {thread} both write to {address:#x}")
        writer[at : at + nbytes] = thread
        data[at : at + nbytes] = np.frombuffer(value.to_bytes(nbytes, "little"), np.uint8)

    def forget_writers(self) -> None:
        """Let the threads of another launch write where those of the last one did."""
        for _, _, writer in self._areas:
            writer[:] = -1

    def forget_writers_at(self, address: int, nbytes: int) -> None:
        """Let another thread write to some bytes, as by an atomic operation."""
        _, writer, at = self._find(address, nbytes)
        writer[at : at + nbytes] = -1

    def _find(self, address: int, nbytes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
        for base, data, writer in self._areas:
            if base <= address and address + nbytes <= base + len(data):
                return data, writer, address - base
        raise FaultError(f"{nbytes} bytes at {address:#x} are outside the program's memory")


@dataclass
class Machine:
    """What threads share: memory, clocks, SMs, and the identity of the launch."""

    memory: Memory = field(default_factory=Memory)
    sms: int = 3  # block i runs on SM i modulo this
    cycles: int = 1_000_003  # of SM 0; each further SM is ahead by ``sm_skew``
    sm_skew: int = 5_000_000
    cycles_per_read: int = 7
    epoch_ns: int = 1_700_000_000_000_000_000
    ns_step: int = 32
    grid_id: int = 0x1_0000_0001

    def launch(
        self,
        ptx: str,
        params: Sequence[int],
        grid: Dim = (1, 1, 1),
        block: Dim = (WARP, 1, 1),
        blocks: Sequence[int] | None = None,
    ) -> None:
        """Run a kernel, block by block and thread by thread; only ``blocks`` (linear) if given."""
        program = Program(ptx)
        code = [compile_instruction(instruction, program) for instruction in program.instructions]
        count = grid[0] * grid[1] * grid[2]
        for linear in range(count) if blocks is None else blocks:
            for thread in range(block[0] * block[1] * block[2]):
                _Thread(self, params, grid, block, linear, thread).run(code)
        self.memory.forget_writers()

    def read_clock(self, sm: int) -> int:
        """Return an SM's cycle counter; time passes with each read."""
        self.cycles += self.cycles_per_read
        return self.cycles + sm * self.sm_skew

    def read_timer(self) -> int:
        """Return the global timer in ns: half a nanosecond per cycle, in steps."""
        self.cycles += self.cycles_per_read
        return (self.epoch_ns + self.cycles // 2) // self.ns_step * self.ns_step


class _Thread:
    def __init__(
        self,
        machine: Machine,
        params: Sequence[int],
        grid: Dim,
        block: Dim,
        linear_block: int,
        thread: int,
    ) -> None:
        self._machine, self._params = machine, params
        self._id = linear_block * MAX_THREADS + thread
        self._sm = linear_block % machine.sms
        self.registers: dict[str, int] = {}
        self._special = {
            **_axes("%nctaid", grid),
            **_axes("%ntid", block),
            **_axes("%ctaid", _unravel(linear_block, grid)),
            **_axes("%tid", _unravel(thread, block)),
            "%smid": self._sm,
            "%gridid": machine.grid_id,
        }

    def run(self, code: Sequence[Step]) -> None:
        at = 0
        while at < len(code):
            to = code[at](self)
            at = at + 1 if to is None else to

    def read_special(self, name: str) -> int:
        if name in {"%clock", "%clock64"}:
            return self._machine.read_clock(self._sm)
        if name in {"%globaltimer", "%globaltimer_lo"}:
            return self._machine.read_timer()
        if name not in self._special:
            raise FaultError(f"this machine has no register {name}")
        return self._special[name]

    def read_param(self, index: int) -> int:
        return self._params[index]

    def load(self, address: int, nbytes: int) -> int:
        return self._machine.memory.load(address, nbytes)

    def store(self, address: int, value: int, nbytes: int) -> None:
        self._machine.memory.store(address, value, nbytes, self._id)


def _axes(name: str, value: Dim) -> dict[str, int]:
    return {f"{name}.{axis}": part for axis, part in zip("xyz", value, strict=True)}


def _unravel(linear: int, shape: Dim) -> Dim:
    return linear % shape[0], linear // shape[0] % shape[1], linear // shape[0] // shape[1]
