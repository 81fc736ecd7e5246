"""Turns tables that address probes fill into figures: sectors, bank conflicts, reuse by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.run_figures import AccessFigures

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
_LANES: Final = 32
_SECTOR: Final = 32
_WORD: Final = 4
_BANKS: Final = 32
_ROW: Final = _BANKS * _WORD
_HEAD_WORDS: Final = 4
_DIGITS: Final = 4
_NONE: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class RecordedAccess:
    """What is known of a recorded access from the machine code."""

    text: str
    line: str
    range: str
    space: str
    kind: str
    width: int
    lanes: int  # the first so many have an address that counts
    beyond: int  # bytes that the instruction adds to its registers


@dataclass(frozen=True, slots=True)
class _Requests:
    """Whole requests of one access: a row each, a column for each lane."""

    slot: Numbers
    active: Flags
    address: Numbers


def figures(
    data: bytes, accesses: list[RecordedAccess], warps: int, capacity: int
) -> tuple[AccessFigures, ...]:
    """Return the figures of each access.

    Args:
        data: the buffer: a table for each access of each sampled warp, see ``access_code``.
        accesses: the accesses, in the order of the tables.
        warps: of a block: all of a sampled block's record.
        capacity: entries of a table.
    """
    words = np.frombuffer(data, "<u4").astype(np.int64)
    tables = words.reshape(-1, len(accesses), _HEAD_WORDS + 4 * capacity)
    return tuple(
        _figures(each, tables[:, number], warps, capacity) for number, each in enumerate(accesses)
    )


def _figures(access: RecordedAccess, tables: Numbers, warps: int, capacity: int) -> AccessFigures:
    executed = tables[:, 0]
    kept = np.minimum(executed, capacity)
    found = _requests(access, tables[:, _HEAD_WORDS:].reshape(len(tables), capacity, 4), kept)
    made = AccessFigures(
        *(access.text, access.line, access.range, access.space, access.kind, access.width),
        *(int(executed.sum()), int((executed - kept).sum()), len(found.slot)),
    )
    if not len(found.slot):
        return made
    cost, least = _cost(access, found)
    reuse, share = _reuse(access, found, warps)
    return AccessFigures(
        *(made.text, made.line, made.range, made.space, made.kind, made.width),
        *(made.executed, made.dropped, made.requests),
        active=_mean(found.active.sum(axis=1)),
        cost=_mean(cost),
        least=_mean(least),
        same_address=_mean(_most_alike(found)),
        reuse=reuse,
        blocks_share=share,
        stride=_stride(found),
    )


def request_costs(
    space: str, kind: str, width: int, address: Numbers, active: Flags
) -> tuple[Numbers, Numbers]:
    """Return the sectors, or wavefronts of shared memory, of requests, and how few would do.

    Args:
        space: "global", "shared" or "local".
        kind: "load", "store" or "atomic".
        width: bytes of a lane.
        address: of each request's 32 lanes, shape (requests, 32).
        active: which lanes take part, of the same shape.
    """
    access = RecordedAccess("", "", "", space, kind, width, _LANES, 0)
    return _cost(access, _Requests(np.arange(len(address)), active, address))


def _mean(values: NDArray[np.generic]) -> float:
    return round(float(values.mean()), _DIGITS)


def _requests(access: RecordedAccess, entries: Numbers, kept: Numbers) -> _Requests:
    """Join the lanes of each request: those with one mask, in the order in which they stored.

    A request of which a lane had no room is left out.
    """
    slot = np.repeat(np.arange(len(entries)), kept)
    at = np.arange(len(slot)) - np.repeat(np.cumsum(kept) - kept, kept)
    lane, low, high, mask = entries[slot, at].T
    order = np.lexsort((at, mask, slot))
    slot, lane, low, high, mask = (each[order] for each in (slot, lane, low, high, mask))
    first = np.ones(len(slot), bool)
    first[1:] = (slot[1:] != slot[:-1]) | (mask[1:] != mask[:-1])
    begin = np.maximum.accumulate(np.where(first, np.arange(len(slot)), 0))
    size = (mask[:, None] >> np.arange(_LANES) & 1).sum(axis=1)
    turn = (np.arange(len(slot)) - begin) // np.maximum(size, 1)
    number = np.cumsum(first | (np.diff(turn, prepend=0) != 0)) - 1 if len(slot) else slot
    count = int(number[-1]) + 1 if len(slot) else 0
    active = np.zeros((count, _LANES), bool)
    address = np.zeros((count, _LANES), np.int64)
    inside = (lane >= 0) & (lane < _LANES)
    active[number[inside], lane[inside]] = True
    address[number[inside], lane[inside]] = (low | high << 32)[inside]
    whole = np.zeros(count, bool)
    of_slot = np.zeros(count, np.int64)
    if count:
        ends = np.flatnonzero(np.diff(number, prepend=-1))
        of_slot = slot[ends]
        bits = (active * (1 << np.arange(_LANES))).sum(axis=1)
        whole = bits == mask[ends]
    active[:, access.lanes :] = False
    whole &= active.any(axis=1)
    return _Requests(of_slot[whole], active[whole], address[whole] + access.beyond)


def _ordered(values: Numbers, active: Flags) -> tuple[Numbers, Flags]:
    """Return the active lanes' values of each row in order, and which differ from those before."""
    ordered = np.sort(np.where(active, values, _NONE), axis=1)
    new = ordered != _NONE
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return ordered, new


def _distinct(values: Numbers, active: Flags) -> Numbers:
    """Return how many distinct values the active lanes of each row have."""
    return np.asarray(_ordered(values, active)[1].sum(axis=1))


def _cost(access: RecordedAccess, found: _Requests) -> tuple[Numbers, Numbers]:
    """Return the sectors, or wavefronts, of each request, and how few its lanes could do with."""
    if access.space == "shared":
        return _wavefronts(access, found)
    least = -(-found.active.sum(axis=1) * access.width // _SECTOR)
    if access.space != "local":
        return _distinct(found.address // _SECTOR, found.active), least
    # A thread's words lie 128 bytes apart: those of its neighbours lie between.
    words = max(access.width // _WORD, 1)
    sector = found.address // _WORD * _WORD + np.arange(_LANES) // (_SECTOR // _WORD)
    return words * _distinct(sector, found.active), np.maximum(least, words)


def _wavefronts(access: RecordedAccess, found: _Requests) -> tuple[Numbers, Numbers]:
    """Return the wavefronts of each request of shared memory: 128 bytes of lanes go together.

    Of two such parts, one that asks for words of the other alone goes with it. Lanes of an atomic
    operation that have one address go one after another.
    """
    words = max(access.width // _WORD, 1)
    together = min(_LANES, _ROW // (words * _WORD))
    parts = []
    for first in range(0, _LANES, together):
        lanes = slice(first, first + together)
        active, address = found.active[:, lanes], found.address[:, lanes]
        word = np.concatenate([address // _WORD + n for n in range(words)], axis=1)
        parts.append((word, np.concatenate([active] * words, axis=1)))
    distinct = access.kind != "atomic"
    costs = [_most_in_a_bank(word, active, distinct) for word, active in parts]
    least = [active.any(axis=1).astype(np.int64) for _, active in parts]
    cost = np.sum(costs, axis=0)
    for one in range(0, len(parts) - 1, 2):
        alike = _within(*parts[one], *parts[one + 1]) | _within(*parts[one + 1], *parts[one])
        both = np.minimum(costs[one], costs[one + 1])
        cost = cost - np.where(alike & distinct, both, 0)
        fewer = np.minimum(least[one], least[one + 1])
        least[one] = least[one] - np.where(alike & distinct, fewer, 0)
    return cost, np.sum(least, axis=0)


def _within(word: Numbers, active: Flags, others: Numbers, there: Flags) -> Flags:
    """Return in which rows all active lanes' words are among those of other lanes."""
    same = (word[:, :, None] == others[:, None, :]) & there[:, None, :]
    return np.asarray((same.any(axis=2) | ~active).all(axis=1))


def _most_in_a_bank(word: Numbers, active: Flags, distinct: bool) -> Numbers:
    """Return the most words, distinct ones or all, that a row asks of one bank."""
    ordered, new = _ordered(word, active)
    new = new if distinct else ordered != _NONE
    rows, places = np.nonzero(new)
    key = rows * _BANKS + ordered[rows, places] % _BANKS
    counts = np.bincount(key, minlength=len(word) * _BANKS)
    return np.asarray(counts.reshape(len(word), _BANKS).max(axis=1))


def _most_alike(found: _Requests) -> Numbers:
    """Return the most active lanes of each request that have one address."""
    ordered, new = _ordered(found.address, found.active)
    place = np.arange(_LANES)
    begin = np.maximum.accumulate(np.where(new, place, 0), axis=1)
    return np.asarray(np.where(ordered != _NONE, place - begin + 1, 0).max(axis=1))


def _reuse(access: RecordedAccess, found: _Requests, warps: int) -> tuple[float, float | None]:
    """Return how often a block asks for one sector or word, and how many blocks ask for it.

    Local and shared memory are a thread's and a block's own: no other block asks for the same.
    """
    rows, lanes = np.nonzero(found.active)
    unit = _WORD if access.space == "shared" else _SECTOR
    place = found.address[rows, lanes] // unit
    request = np.unique(np.stack([rows, place], axis=1), axis=0)
    block = found.slot[request[:, 0]] // warps
    if access.space == "local":
        block = found.slot[request[:, 0]]
    by_block = np.unique(np.stack([block, request[:, 1]], axis=1), axis=0)
    reuse = round(len(request) / len(by_block), _DIGITS)
    if access.space not in ("global", "generic"):
        return reuse, None
    return reuse, round(len(by_block) / len(np.unique(by_block[:, 1])), _DIGITS)


def _stride(found: _Requests) -> int | None:
    """Return the distance of neighbouring lanes' addresses, where nine in ten have the same."""
    both = found.active[:, 1:] & found.active[:, :-1]
    steps = np.diff(found.address, axis=1)[both]
    if not len(steps):
        return None
    values, counts = np.unique(steps, return_counts=True)
    most = int(counts.argmax())
    return int(values[most]) if counts[most] >= 0.9 * len(steps) else None
