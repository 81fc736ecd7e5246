"""What comes of putting records into a kernel: to know it, nothing that makes it is imported."""

from __future__ import annotations

from dataclasses import dataclass

from ikp.core import abi
from ikp.core.segment import EVERYTHING, Selection
from ikp.sass.cubins.added_parameter import Argument
from ikp.verifier.declared import Declared


@dataclass(frozen=True, slots=True)
class Patch:
    """A patched cubin, and what is recorded in it.

    ``most`` is how many records a warp should have room for, None where loops say how many.
    ``warps`` is how many a block has, 0 where the file doesn't say. ``notes`` say what is not
    recorded, and what the rest costs.
    """

    cubin: bytes
    names: tuple[str, ...]
    warps: int
    registers: tuple[int, int]  # of a thread: before, and now
    most: int | None = None
    notes: tuple[str, ...] = ()
    told: tuple[str, ...] = ()  # what recording is expected to cost; what chosen lines' ranges hold
    ours: tuple[tuple[int, int], ...] = ()  # what was put in: from byte to byte of the code
    plain: tuple[int, int] | None = None  # what of that is the kernel's own code once more
    kept: str = ""  # the file that it is in; "" where nobody keeps it
    cell_counts_records: bool = False  # the cell says how many a slot has room for, not its bytes
    select: bool = False  # behind the cell stands which warps record
    sample: Selection = EVERYTHING  # which blocks do, where the others leave their headers alone
    argument: Argument | None = None  # the cell is this of each launch; None: the module's memory
    margin: int = 0  # how many records a warp may write behind the last that it keeps
    fewer_blocks: bool = False  # an SM has room for fewer than before, as far as registers go
    declared: Declared | None = None  # how it differs from the plain one; None: it was compiled so
    sources: tuple[str, ...] = ()  # files of source code that its ranges are named by

    @property
    def beside_bytes(self) -> int:
        """Return how many bytes of a slot keep no record."""
        return abi.DENSE_HEADER_BYTES + abi.RECORD_BYTES * self.margin

    def fits(self, slot_bytes: int) -> bool:
        """Return whether a slot of so many bytes can keep a record."""
        return slot_bytes >= self.beside_bytes + abi.RECORD_BYTES

    def size_for_cell(self, slot_bytes: int) -> int:
        """Return what the cell says of a slot of so many bytes."""
        if self.cell_counts_records:
            return max(0, slot_bytes - self.beside_bytes) // abi.RECORD_BYTES
        return slot_bytes
