"""A kernel's footprint on an SM, read from its cubin: registers, stack, and blocks per SM."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ikp.probes.placement.occupancy import most_registers, resident
from ikp.sass.assembly.chips import CHIPS, HOPPER, Chip, State
from ikp.sass.cubins import attributes
from ikp.sass.cubins.attributes import Code
from ikp.sass.cubins.cubin import Cubin


@dataclass(frozen=True, slots=True)
class Footprint:
    """A thread's registers and stack, and how many blocks an SM has room for.

    ``warps`` is how many a block has; 0 where that is not known, and so neither are blocks.
    """

    registers: int
    stack: int  # bytes of local memory: what spills is there
    warps: int
    shared: int  # bytes of a block
    chip: Chip

    @classmethod
    def of(cls, cubin: bytes, name: str, warps: int, shared: int) -> Footprint:
        """Return the footprint of a kernel in a cubin.

        Args:
            cubin: the machine code.
            name: the kernel's.
            warps: of a block.
            shared: bytes of shared memory that a block is launched with.

        Raises:
            PatchError: it is no cubin that is known, or has no such kernel.
        """
        file = Cubin.read(cubin)
        kernel = file.kernel(name)
        info = file.elf.find(".nv.info")
        found = attributes.parse(info.data) if info is not None else []
        frames = [each.words for each in found if each.code == Code.FRAME_SIZE]
        stack = next((words[1] for words in frames if words[0] == kernel.symbol), 0)
        return cls(kernel.registers, stack, warps, shared, _chip(f"sm_{file.sm}"))

    @property
    def blocks(self) -> int:
        """How many blocks an SM has room for; 0 where that is not known."""
        if not self.warps:
            return 0
        return resident(self.registers, self.warps, self.shared, self.chip) // self.warps

    @property
    def most_registers(self) -> int:
        """The most registers a thread with which an SM has room for as many blocks."""
        return most_registers(self.registers, self.warps, self.shared, self.chip)

    def spills_beside(self, plain: Footprint) -> bool:
        """Whether more of a thread's registers spill than the plain kernel's."""
        return self.stack > plain.stack

    def crowds_beside(self, plain: Footprint) -> bool:
        """Whether an SM has room for fewer blocks than of the plain kernel."""
        return self.blocks < plain.blocks

    def worse_than(self, plain: Footprint) -> str:
        """Return a message on what a kernel with records loses to the plain one; "" for nothing."""
        if self.spills_beside(plain):
            return f"{self.stack - plain.stack} bytes of a thread's registers would spill"
        if self.crowds_beside(plain):
            return f"an SM would have room for {self.blocks} blocks, not {plain.blocks}"
        return ""


def _chip(name: str) -> Chip:
    """Return a chip by its name; one that is not known is taken for as large as sm_90."""
    unknown = replace(HOPPER, name=name, state=State.COMPILED)
    return next((each for each in CHIPS if each.name == name), unknown)
