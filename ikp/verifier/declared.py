"""What a patch declares of itself, and what verification raises."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ikp.errors import PatchError


class VerifyError(PatchError):
    """A patched kernel that failed its verification, so it is not launched."""


@dataclass(frozen=True, slots=True)
class Declared:
    """How a patched kernel differs from the plain one, by the patch's own account."""

    kernel: str  # the name that its code's section has
    registers: int  # of each thread
    inserted: tuple[tuple[int, int], ...]  # from byte to byte of the patched code
    beside: tuple[int, int] | None  # of these: the plain kernel once more, as such blocks run it
    bank: int  # of the constants that hold the cell
    cell: int  # where in these it begins
    nbytes: int  # that it has
    ordinal: int | None = None  # the parameter that it is; None where it is the module's memory

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON stores it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Declared:
        """Return what ``to_json`` stored.

        Raises:
            VerifyError: it is not that.
        """
        try:
            beside = data["beside"] and (int(data["beside"][0]), int(data["beside"][1]))
            spans = tuple((int(first), int(end)) for first, end in data["inserted"])
            return cls(**{**data, "inserted": spans, "beside": beside})
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise VerifyError(f"What the patch declares can't be read ({error}).") from error
