"""``Codes``: small numbers for region and role ids, found by a hash of id and name table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import REGION_MASK
from ikp.core.decoding.excerpt import Ints

ID_BITS = REGION_MASK.bit_length()
_HASH_BITS = 14
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Codes:
    """Codes of region or role ids, one for each distinct key, in the order in which keys come.

    A key is an id together with the name table that it belongs to. Keys are few: a hash table finds
    them several times faster than a search does.
    """

    def __init__(self) -> None:
        self.seen = np.zeros(0, np.uint64)  # by code
        self._slots = np.zeros(1 << _HASH_BITS, np.int32)

    def parts(self) -> NDArray[np.uint64]:
        """Return the hash table as ``plain.c`` takes it; valid as long as no new key comes."""
        places = [self._slots.ctypes.data, self.seen.ctypes.data, len(self.seen)]
        return np.array([*places, _FACTOR, 64 - _HASH_BITS], np.uint64)

    def of(self, tables: Ints | int, numbers: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Return the code of each number in its table, new ones for those not seen before."""
        key = numbers.astype(np.uint64)
        if isinstance(tables, int):
            key |= np.uint64(tables << ID_BITS)
        else:
            key |= tables.astype(np.uint64) << np.uint64(ID_BITS)
        if not len(key):
            return np.zeros(0, np.int32)
        if len(key) > 1 and (key == key[0]).all():
            return np.repeat(self._of(key[:1]), len(key))
        return self._of(key)

    def _of(self, key: NDArray[np.uint64]) -> NDArray[np.int32]:
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
