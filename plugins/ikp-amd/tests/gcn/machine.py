"""A machine that runs waves of gfx942 and gfx950 on the CPU: what LLVM makes of small kernels.

Waves run one after another, each from start to end, so a program may not wait for another wave.
The machine is stricter than a GPU. These are faults: reading a scalar register that nobody wrote,
or one that a load or clock read has not been waited for; addresses outside the given memory,
misaligned ones, two lanes writing one byte; and the hazards of the hardware that assembly has to
keep by itself (the ISA's table of states that software must insert), as far as ikp's code can meet
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gcn.opcodes import run_scalar, run_vector
from gcn.program import Instruction, Operand, Program, Register
from tests.machines.ptx_machine import MAX_THREADS, Dim, Memory
from tests.machines.ptx_program import FaultError

LANES = 64
ALL = (1 << LANES) - 1
MOST_STEPS = 100_000
ARGUMENTS = 0x7A00_0000_0000
# States that have to pass, by what was written and what reads or writes it.
STORED_DATA, SCALAR_OF_VECTOR_IN_STORE, SCALAR_OF_VECTOR_IN_VECTOR, LANE_READ = 2, 5, 2, 1

Vector = NDArray[np.uint32]


@dataclass
class GcnMachine:
    """What waves share: memory and clocks. Block i runs on compute unit i modulo ``units``."""

    memory: Memory = field(default_factory=Memory)
    units: int = 3
    cycles: int = 1_000_003  # of unit 0; each further unit is ahead by ``unit_skew``
    unit_skew: int = 5_000_000
    cycles_per_read: int = 20
    epoch_ticks: int = 17_000_000_000_000
    launches: int = 0

    def launch(
        self,
        text: str,
        params: Sequence[int],
        grid: Dim = (1, 1, 1),
        waves: int = 1,
        *,
        preloads: bool = True,
        blocks: Sequence[int] | None = None,
    ) -> None:
        """Run a kernel; ``preloads``: the hardware puts the first arguments in registers."""
        program = Program(text)
        arguments = ARGUMENTS + 0x1000 * self.launches
        self.launches += 1
        size = program.kernel[".kernarg_segment_size"]
        _fill(self.memory.map(arguments, size), program, params, grid, waves)
        count = grid[0] * grid[1] * grid[2]
        for block in range(count) if blocks is None else blocks:
            for wave in range(waves):
                _Wave(self, program, arguments, grid, block, wave, preloads).run()
        self.memory.forget_writers()

    def read_clock(self, unit: int) -> int:
        """Return a compute unit's cycle counter; time passes with each read."""
        self.cycles += self.cycles_per_read
        return self.cycles + unit * self.unit_skew

    def read_timer(self) -> int:
        """Return the shared timer: one tick in 20 cycles."""
        self.cycles += self.cycles_per_read
        return self.epoch_ticks + self.cycles // 20


def _fill(
    memory: NDArray[np.uint8], program: Program, params: Sequence[int], grid: Dim, waves: int
) -> None:
    """Write a kernel's arguments, those that the runtime adds too, where the metadata says."""
    hidden = {
        **{f"hidden_block_count_{axis}": n for axis, n in zip("xyz", grid, strict=True)},
        "hidden_group_size_x": waves * LANES,
        "hidden_group_size_y": 1,
        "hidden_group_size_z": 1,
    }
    given = iter(params)
    for argument in program.kernel[".args"]:
        kind, at, size = argument[".value_kind"], argument[".offset"], argument[".size"]
        value = hidden.get(kind, 0) if kind.startswith("hidden") else next(given)
        memory[at : at + size] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)


class _Wave:
    def __init__(
        self,
        machine: GcnMachine,
        program: Program,
        arguments: int,
        grid: Dim,
        block: int,
        wave: int,
        preloads: bool,
    ) -> None:
        self._machine, self._program = machine, program
        self._thread = block * MAX_THREADS + wave * LANES
        self.unit = block % machine.units
        self.scalars: dict[int, int] = {}
        self.vectors: dict[int, Vector] = {}
        self.exec, self.vcc, self.scc = ALL, 0, 0
        self._state = 0
        self._scalar_written: dict[int, int] = {}  # state in which a vector instruction did
        self._vector_written: dict[int, int] = {}
        self._stored: dict[int, int] = {}  # state in which a wide store took its data from here
        self._pending_scalars: set[int] = set()
        self._memory_queue: list[set[int]] = []
        self._set_up(arguments, grid, block, wave, preloads)

    def _set_up(self, arguments: int, grid: Dim, block: int, wave: int, preloads: bool) -> None:
        words = self._program.set_up
        assert words["user_sgpr_kernarg_segment_ptr"] == 1
        assert not any(
            words[f"user_sgpr_{name}"] for name in ("dispatch_ptr", "queue_ptr", "dispatch_id")
        )
        self.write(Register("s", 0, 2), arguments)
        self._at = self._program.entry if preloads else 0
        if preloads:
            for i in range(words["user_sgpr_kernarg_preload_length"]):
                address = arguments + 4 * (i + words["user_sgpr_kernarg_preload_offset"])
                self.scalars[2 + i] = self._machine.memory.load(address, 4)
        at = words["user_sgpr_count"]
        ids = block % grid[0], block // grid[0] % grid[1], block // grid[0] // grid[1]
        for axis, number in zip("xyz", ids, strict=True):
            if words[f"system_sgpr_workgroup_id_{axis}"]:
                self.scalars[at] = number
                at += 1
        self.vectors[0] = np.arange(wave * LANES, (wave + 1) * LANES, dtype=np.uint32)

    def run(self) -> None:
        for _ in range(MOST_STEPS):
            instruction = self._program.instructions[self._at]
            self._at += 1
            if instruction.name == "s_endpgm":
                return
            try:
                self._step(instruction)
            except FaultError as fault:
                raise FaultError(f"{instruction.text}: {fault}") from None
            self._state += 1
        raise FaultError(f"more than {MOST_STEPS} steps")

    def _step(self, it: Instruction) -> None:
        name = it.name
        if name == "s_waitcnt":
            self._wait(it.flags)
        elif name == "s_nop":
            self._state += int(it.operands[0])  # type: ignore[arg-type]
        elif name.startswith(("s_cbranch", "s_branch")):
            self._branch(name, str(it.operands[0]))
        elif name in {"s_memtime", "s_memrealtime"}:
            read = name == "s_memtime"
            value = self._machine.read_clock(self.unit) if read else self._machine.read_timer()
            self._scalar_result(it.operands[0], value)
        elif name.startswith("s_load_dword"):
            address = self.read(it.operands[1]) + self.read(it.operands[2])
            into = it.operands[0]
            assert isinstance(into, Register)
            self._scalar_result(into, self._machine.memory.load(address, 4 * into.count))
        elif name.startswith(("global_load", "global_store")):
            self._access(it)
        elif name.startswith("v_"):
            self._vector(it)
        else:
            run_scalar(self, it)

    def _wait(self, flags: dict[str, int]) -> None:
        if flags.get("lgkmcnt") == 0:
            self._pending_scalars.clear()
        if "vmcnt" in flags:
            del self._memory_queue[: max(0, len(self._memory_queue) - flags["vmcnt"])]

    def _branch(self, name: str, label: str) -> None:
        taken = {
            "s_branch": True,
            "s_cbranch_scc0": not self.scc,
            "s_cbranch_scc1": bool(self.scc),
            "s_cbranch_vccz": not self.vcc,
            "s_cbranch_vccnz": bool(self.vcc),
            "s_cbranch_execz": not self.exec,
            "s_cbranch_execnz": bool(self.exec),
        }[name]
        if taken:
            self._at = self._program.labels[label]

    def _scalar_result(self, into: Operand, value: int) -> None:
        self.write(into, value)
        assert isinstance(into, Register)
        self._pending_scalars |= set(range(into.first, into.first + into.count))

    def _vector(self, it: Instruction) -> None:
        for operand in it.operands[1:]:
            if isinstance(operand, Register) and operand.file == "s":
                self._passed(self._scalar_written, operand, SCALAR_OF_VECTOR_IN_VECTOR, it)
        if it.name.startswith("v_readfirstlane"):
            source = it.operands[1]
            assert isinstance(source, Register)
            self._passed(self._vector_written, source, LANE_READ, it)
        if it.name == "v_writelane_b32":  # a scalar register kept in a lane
            where, value, at = it.operands
            assert isinstance(where, Register)
            column = self.vectors.setdefault(where.first, np.zeros(LANES, np.uint32))
            column[self.read(at)] = self.read(value)
        else:
            run_vector(self, it)
        into = it.operands[0]
        if isinstance(into, Register) and into.file in {"s", "v"}:
            written = self._vector_written if into.file == "v" else self._scalar_written
            written |= dict.fromkeys(range(into.first, into.first + into.count), self._state)
            if into.file == "v":
                self._passed(self._stored, into, STORED_DATA, it)

    def _passed(
        self, when: dict[int, int], register: Register, states: int, it: Instruction
    ) -> None:
        for number in range(register.first, register.first + register.count):
            if number in when and 0 < self._state - when[number] <= states:
                raise FaultError(f"needs {states} states after {register} was used: {it.text}")

    def _access(self, it: Instruction) -> None:
        store = it.name.startswith("global_store")
        words = int(it.name.partition("dwordx")[2] or 1)
        data, where = (it.operands[1], it.operands[0]) if store else it.operands[:2]
        base = it.operands[2]
        assert isinstance(data, Register) and isinstance(where, Register)
        if isinstance(base, Register):
            self._passed(self._scalar_written, base, SCALAR_OF_VECTOR_IN_STORE, it)
            offset = self.read(base)
        else:
            offset = 0
        queued: set[int] = set()
        for lane in range(LANES):
            if not self.exec >> lane & 1:
                continue
            address = offset + self.lane(where, lane) + it.flags.get("offset", 0)
            if address % (4 * words):
                raise FaultError(f"misaligned: {address:#x}")
            if store:
                value = self.lane(data, lane)
                self._machine.memory.store(address, value, 4 * words, self._thread + lane)
            else:
                value = self._machine.memory.load(address, 4 * words)
                for i in range(words):
                    vector = self.vectors.setdefault(data.first + i, np.zeros(LANES, np.uint32))
                    vector[lane] = value >> 32 * i & 0xFFFFFFFF
                queued |= set(range(data.first, data.first + words))
        if store and words > 2:
            self._stored |= dict.fromkeys(range(data.first, data.first + words), self._state)
        self._memory_queue.append(queued)

    def lane(self, register: Register, lane: int) -> int:
        """Return what vector registers hold in one lane."""
        return sum(
            int(self._column(register.first + i)[lane]) << 32 * i for i in range(register.count)
        )

    def _column(self, number: int) -> Vector:
        if any(number in queued for queued in self._memory_queue):
            raise FaultError(f"v{number} has not been waited for")
        if number not in self.vectors:  # LLVM reads what it knows to be of no consequence
            return np.full(LANES, 0xDEAD_BEEF, np.uint32)
        return self.vectors[number]

    def vector(self, operand: Operand, words: int = 1) -> NDArray[np.uint64]:
        """Return an operand of a vector instruction for all lanes."""
        if isinstance(operand, Register) and operand.file == "v":
            total = np.zeros(LANES, np.uint64)
            for i in range(words):
                total |= self._column(operand.first + i).astype(np.uint64) << np.uint64(32 * i)
            return total
        return np.full(LANES, self.read(operand, 32 * words), np.uint64)

    def read(self, operand: Operand, bits: int = 0) -> int:
        """Return an unsigned scalar operand; ``bits`` is its size where it is a constant."""
        if isinstance(operand, Register):
            if operand.file in {"exec", "vcc"}:
                whole = int(getattr(self, operand.file))
                return whole >> 32 * operand.first & (1 << 32 * operand.count) - 1
            if operand.file != "s":
                raise FaultError(f"{operand} is no scalar")
            numbers = range(operand.first, operand.first + operand.count)
            for number in numbers:
                if number in self._pending_scalars:
                    raise FaultError(f"s{number} has not been waited for")
                if number not in self.scalars:
                    raise FaultError(f"s{number} is read before it is written")
            return sum(self.scalars[number] << 32 * i for i, number in enumerate(numbers))
        if isinstance(operand, float):
            return int(np.float32(operand).view(np.uint32))
        assert isinstance(operand, int)
        return operand & (1 << (bits or 64)) - 1

    def write(self, operand: Operand, value: int) -> None:
        """Write a scalar result."""
        assert isinstance(operand, Register)
        if operand.file in {"exec", "vcc"}:
            mask = (1 << 32 * operand.count) - 1 << 32 * operand.first
            kept = getattr(self, operand.file) & ~mask
            setattr(self, operand.file, kept | value << 32 * operand.first & mask)
            return
        if operand.file != "s":
            raise FaultError(f"{operand} is no scalar")
        for i in range(operand.count):
            self.scalars[operand.first + i] = value >> 32 * i & 0xFFFFFFFF
            self._pending_scalars.discard(operand.first + i)
            self._scalar_written.pop(operand.first + i, None)

    def write_vector(self, operand: Operand, values: NDArray[np.uint64], words: int = 1) -> None:
        """Write a vector result in the active lanes."""
        assert isinstance(operand, Register) and operand.file == "v"
        active = np.array([self.exec >> lane & 1 for lane in range(LANES)], bool)
        for i in range(words):
            column = self.vectors.setdefault(operand.first + i, np.zeros(LANES, np.uint32))
            part = (values >> np.uint64(32 * i)) & np.uint64(0xFFFFFFFF)
            column[active] = part.astype(np.uint32)[active]

    def hardware(self, name: str) -> int:
        """Return bits of a hardware register."""
        if name == "hwreg(HW_REG_HW_ID,8,8)":
            return self.unit
        if name == "hwreg(HW_REG_XCC_ID,0,4)":
            return 2
        raise FaultError(f"this machine has no {name}")
