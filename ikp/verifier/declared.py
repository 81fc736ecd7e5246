"""``Declared``: how a patch differs from the plain kernel: registers, insertions, the cell's place.

The cell is constants that say where a launch records. ``VerifyError``: a patch was refused.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ikp.errors import PatchError


class VerifyError(PatchError):
    """A patched kernel that failed its verification, so it is not launched."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The differences between a patched kernel and the plain one, as the patch declares them."""

    kernel: str  # the kernel's name, as its section has it
    registers: int  # of each thread
    inserted: tuple[tuple[int, int], ...]  # from byte to byte of the patched code
    beside: tuple[int, int] | None  # of these: the plain code again, for blocks that don't record
    bank: int  # of the constants that hold the cell
    cell: int  # the cell's offset in these
    nbytes: int  # the cell's size
    ordinal: int | None = None  # the parameter that is the cell; None: the module's memory is
    watches: bool = False  # inserted code may read what the original instruction behind it reads

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON stores them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Declared:
        """Return what ``to_json`` stored.

        Raises:
            VerifyError: the data are of another form.
        """
        try:
            beside = data["beside"] and (int(data["beside"][0]), int(data["beside"][1]))
            spans = tuple((int(first), int(end)) for first, end in data["inserted"])
            return cls(**{**data, "inserted": spans, "beside": beside})
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise VerifyError(f"What the patch declares can't be read ({error}).") from error
