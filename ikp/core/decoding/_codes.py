"""Numbers in records to places in a trace's tables, which are known only when all is decoded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import REGION_MASK
from ikp.core.decoding.excerpt import Ints
from ikp.core.regions import fallback_name, merge
from ikp.core.trace import Region

_ID_BITS = REGION_MASK.bit_length()
_HASH_BITS = 14
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class NameTables:
    """What launches call the numbers in their records: most launches of a session the same."""

    def __init__(self, known: Mapping[int, str]) -> None:
        self._known = known
        self._tables: list[Mapping[int, str]] = [merge([known])]
        self._numbers: dict[tuple[tuple[int, str], ...], int] = {(): 0}

    def number(self, own: Mapping[int, str] | None) -> int:
        """Return which table is that of a launch with names of its own.

        Raises:
            RegionError: two different names share one id.
        """
        key = tuple(sorted(own.items())) if own else ()
        if key not in self._numbers:
            self._tables.append(merge([self._known, dict(key)]))
            self._numbers[key] = len(self._tables) - 1
        return self._numbers[key]

    def name(self, key: int) -> str:
        """Return the name that a number has in a table; see :func:`keys`."""
        table, number = self._tables[key >> _ID_BITS], key & REGION_MASK
        return table[number] if number in table else fallback_name(number)

    def role(self, key: int) -> str:
        """Return the name of a role; "" where a warp has none."""
        return self.name(key) if key & REGION_MASK else ""

    def region(self, key: int) -> Region:
        """Return the region that a number stands for in a table."""
        return Region(key & REGION_MASK, self.name(key))


def keys(tables: Ints | int, numbers: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return numbers together with the table that each is of."""
    key = numbers.astype(np.uint64)
    if isinstance(tables, int):
        key |= np.uint64(tables << _ID_BITS)
    else:
        key |= tables.astype(np.uint64) << np.uint64(_ID_BITS)
    return key


class Codes:
    """Numbers distinct keys in the order in which they come.

    There are few: a table of hashes finds them several times faster than a search does.
    """

    def __init__(self) -> None:
        self.seen = np.zeros(0, np.uint64)  # by code
        self._slots = np.zeros(1 << _HASH_BITS, np.int32)

    def of(self, key: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the code of each key, new ones for those not seen before."""
        if not len(key):
            return np.zeros(0, np.int32)
        code: NDArray[np.int32] = self._slots[self._hash(key)]
        if len(self.seen) and (self.seen[code] == key).all():
            return code
        distinct, which = np.unique(key, return_inverse=True)
        new = distinct[~np.isin(distinct, self.seen)]
        self._slots[self._hash(new)] = len(self.seen) + np.arange(len(new), dtype=np.int32)
        self.seen = np.append(self.seen, new)
        order = np.argsort(self.seen).astype(np.int32)
        place = order[np.searchsorted(self.seen[order], distinct)]
        found: NDArray[np.int32] = place[which.reshape(-1)]
        return found

    @staticmethod
    def _hash(key: NDArray[np.uint64]) -> NDArray[np.intp]:
        found: NDArray[np.intp] = ((key * _FACTOR) >> np.uint64(64 - _HASH_BITS)).astype(np.intp)
        return found
