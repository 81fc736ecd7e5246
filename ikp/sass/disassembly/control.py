"""The control bits of instructions: stall, yield, scoreboards taken and awaited, operand reuse.

An instruction of variable latency takes one of six scoreboards for its results, and one for its
operands. A later instruction waits for scoreboards by its mask, right before it is issued.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Word = tuple[int, int]
"""The 128 bits of an instruction: the low 64, then the high 64."""

SCOREBOARDS = 6
NONE = 7
"""The number of the scoreboard in an instruction that takes none."""

_STALL, _YIELD, _WRITES, _READS, _WAITS, _REUSE = 41, 45, 46, 49, 52, 58
"""Where the fields begin in the high half: bits 105, 109, 110, 113, 116 and 122 of the word."""


@dataclass(frozen=True, slots=True)
class Control:
    """The control bits of one instruction."""

    stall: int  # cycles until the warp issues its next instruction, at least
    yields: bool  # the scheduler may prefer another warp
    writes: int | None  # the scoreboard that is released when its results are there
    reads: int | None  # ... when its operands have been read
    waits: frozenset[int]  # scoreboards that must be released before it is issued
    reuse: int  # a bit for each operand that stays in the operand cache

    @classmethod
    def of(cls, word: Word) -> Control:
        """Decode a word."""
        high = word[1]
        mask = high >> _WAITS & 63
        return cls(
            high >> _STALL & 15,
            not high >> _YIELD & 1,
            _scoreboard(high >> _WRITES & 7),
            _scoreboard(high >> _READS & 7),
            frozenset(board for board in range(SCOREBOARDS) if mask >> board & 1),
            high >> _REUSE & 15,
        )


class Controls:
    """The control bits of many instructions, as columns."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self.words = words  # a row each: the low half, the high half

    @classmethod
    def of(cls, bits: Iterable[tuple[str, str]]) -> Controls:
        """Decode words that are written in hexadecimal; "" is a word that was not read."""
        digits = "".join([low + high or "0" * 32 for low, high in bits])
        words = np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64)
        return cls(words.reshape(-1, 2))

    @cached_property
    def writes(self) -> NDArray[np.uint8]:
        """The scoreboard that each releases when its results are there; 7 for none."""
        return self._field(_WRITES, 7)

    @cached_property
    def reads(self) -> NDArray[np.uint8]:
        """The scoreboard that each releases when its operands have been read; 7 for none."""
        return self._field(_READS, 7)

    @cached_property
    def waits(self) -> NDArray[np.uint8]:
        """The scoreboards that each waits for, a bit each."""
        return self._field(_WAITS, 63)

    @cached_property
    def stalls(self) -> NDArray[np.uint8]:
        """Cycles until the next instruction is issued."""
        return self._field(_STALL, 15)

    def _field(self, bit: int, mask: int) -> NDArray[Any]:
        return (self.words[:, 1] >> np.uint64(bit) & np.uint64(mask)).astype(np.uint8)


def _scoreboard(number: int) -> int | None:
    return None if number == NONE else number
