"""The position of one record in a batch: its number, and how many records share registers."""

from __future__ import annotations

from typing import Final, NamedTuple


class Part(NamedTuple):
    """The position of one record in its batch."""

    number: int = 0
    records: int = 1  # of the batch
    led: bool = False  # address and predicate are computed before the first range begins

    @property
    def last(self) -> bool:
        """Whether it is the last of them."""
        return self.number == self.records - 1


ALONE: Final = Part()
