"""``Patch``: a patched cubin as data, with its range names, notes and declared differences.

It imports no patching code.
"""

from __future__ import annotations

from dataclasses import dataclass

from ikp.core import abi
from ikp.core.segment import EVERYTHING, Selection
from ikp.sass.cubins.extra_argument import ExtraArgument
from ikp.verifier.declared import Declared


@dataclass(frozen=True, slots=True)
class Patch:
    """A patched cubin, and what its probes record.

    ``most`` is how many records a warp should have room for, None where loops decide the number.
    ``warps`` is how many a block has, 0 where the file doesn't say. ``notes`` say what is not
    recorded, and what the rest costs.
    """

    cubin: bytes
    names: tuple[str, ...]
    warps: int
    registers: tuple[int, int]  # of a thread: before, and now
    most: int | None = None
    notes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()  # the cost expected; what chosen lines hold
    ours: tuple[tuple[int, int], ...] = ()  # the inserted code: from byte to byte of all code
    plain: tuple[int, int] | None = None  # which of that is a second copy of the plain kernel
    kept: str = ""  # the file that it is in; "" where it is not kept
    cell_counts_records: bool = False  # the cell says how many a slot has room for, not its bytes
    select: bool = False  # the choice of warps that record lies behind the cell
    sample: Selection = EVERYTHING  # which blocks record, where the others write only headers
    argument: ExtraArgument | None = (
        None  # the one that is the cell; None: it is the module's memory
    )
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
        """Return the size of a slot as the cell has it: in records, or in bytes."""
        if self.cell_counts_records:
            return max(0, slot_bytes - self.beside_bytes) // abi.RECORD_BYTES
        return slot_bytes
