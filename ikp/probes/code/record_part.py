"""Which of the records that share something one is."""

from __future__ import annotations

from typing import Final, NamedTuple


class Part(NamedTuple):
    """One record of a batch."""

    number: int = 0
    records: int = 1  # of the batch
    led: bool = False  # what is shared is found out before the first of them begins

    @property
    def last(self) -> bool:
        """Whether it is the last of them."""
        return self.number == self.records - 1


ALONE: Final = Part()
