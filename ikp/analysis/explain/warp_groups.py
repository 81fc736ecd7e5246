"""The time of each warp's ranges in each region (``WarpRegions``), and groups of warps that do
alike.

Ranges are read once, so many at a time that what is made of them stays in the cache; a warp has few
regions, so these sums are a small part of the ranges. ``Moments``, when ranges begin or end, are
computed where they are read: ten million ranges would hold two columns of 80 MB.

Groups are by role; without roles, by the regions that warps record. A region that all warps of its
blocks record distinguishes no groups. A region that only some warps record (one warp stores a sum)
makes no group of them if it takes little time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from ikp.core.sorting import numbered, sum_by

if TYPE_CHECKING:
    from ikp.core.trace import Trace


Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of ranges, in nanoseconds; indexed like an array, with ``[:]`` for all of them."""

    unix_ns: Ints  # of each event
    row: NDArray[np.intp] | None  # of each range: its event; None where all events are ranges
    begin_ns: int  # Unix time of the launch's first start

    @overload
    def __getitem__(self, ranges: slice | NDArray[np.integer[Any] | np.bool_]) -> Ints: ...
    @overload
    def __getitem__(self, ranges: int | np.integer[Any]) -> np.int64: ...
    def __getitem__(self, ranges: Any) -> Any:
        """Return the moments of some ranges, or that of one."""
        rows = ranges if self.row is None else self.row[ranges]
        return self.unix_ns[rows] - self.begin_ns


ROWS_AT_ONCE: Final = 1 << 16
"""Ranges that are read together: columns of so many fit into a cache."""


@dataclass(frozen=True, slots=True)
class WarpRegions:
    """One row for each warp and region of which it has a range, by warp, then by region."""

    slot: Ints
    region: Ints
    count: Ints
    took: Ints
    own: Ints  # self time

    @classmethod
    def of(
        cls,
        slot: NDArray[np.integer[Any]],
        region: NDArray[np.integer[Any]],
        opens: Moments,
        closes: Moments,
        own: Ints,
        regions: int,
    ) -> WarpRegions:
        """Sum up ranges.

        Args:
            slot: of each range.
            region: of each range.
            opens: when each begins.
            closes: when it ends.
            own: its self time.
            regions: how many there are.
        """
        parts = []
        for rows in at_once(len(slot)):
            key = slot[rows].astype(np.int64)
            key *= regions
            key += region[rows]
            took = closes[rows] - opens[rows]
            kinds, place = numbered(key)
            sums = (sum_by(place, each, len(kinds)) for each in (took, own[rows]))
            parts.append((kinds, np.bincount(place), *sums))
        nothing = np.zeros(0, np.int64)
        joined = map(np.concatenate, zip(*parts, strict=True)) if parts else (nothing,) * 4
        key, *columns = joined
        if np.any(key[1:] <= key[:-1]):  # a warp's ranges lie in two parts
            key, place = numbered(key)
            columns = [sum_by(place, each, len(key)) for each in columns]
        return cls(key // max(regions, 1), key % max(regions, 1), *columns)


def at_once(count: int) -> Iterator[slice]:
    """Yield slices of so many rows."""
    for low in range(0, count, ROWS_AT_ONCE):
        yield slice(low, min(low + ROWS_AT_ONCE, count))


Bools = NDArray[np.bool_]

_MOST: Final = 6
"""More kinds of warps than this in one kernel come from data, not from roles."""
_RARE: Final = 0.02
"""Share of all warps below which warps with one set of regions are no group of their own."""
_OWN: Final = 0.1
"""Share of the time in ranges from which on regions that only some warps of a block record make
groups."""
_ALL: Final = 0.9
"""Share of the blocks with a region that have it in all warps, from which on all groups have it."""


@dataclass(frozen=True, slots=True)
class WarpGroups:
    """The groups, and the group of each warp."""

    names: tuple[str, ...]
    by: str  # "role" | "ranges" | "all"
    of_warp: Ints

    def __len__(self) -> int:
        return len(self.names)


def group_warps(trace: Trace, did: WarpRegions, block_of: Ints) -> WarpGroups:
    """Return the groups of a launch's warps.

    Args:
        trace: the launch.
        did: what each warp did in each region.
        block_of: of each warp.
    """
    roles = trace.slots.role
    if len(np.unique(roles)) > 1 or any(trace.roles[i] for i in np.unique(roles).tolist()):
        used, of_warp = np.unique(roles, return_inverse=True)
        names = tuple(trace.roles[i] or "no role" for i in used.tolist())
        return WarpGroups(names, "role", of_warp.astype(np.int64))
    return _by_ranges(trace, did, block_of)


def _by_ranges(trace: Trace, did: WarpRegions, block_of: Ints) -> WarpGroups:
    """Group warps by the set of regions that they record, if blocks hold several such sets."""
    count, regions = len(trace.slots), len(trace.regions)
    everyone = WarpGroups(("all warps",), "all", np.zeros(count, np.int64))
    recorded = did.slot * regions + did.region
    apart = _apart(recorded, regions, block_of)
    if did.own[apart[did.region]].sum() < _OWN * did.own.sum():
        return everyone
    telling = recorded[apart[recorded % regions]]
    weights = np.random.default_rng(0).integers(1, 1 << 62, regions, dtype=np.int64)
    signature = np.zeros(count, np.int64)
    np.bitwise_xor.at(signature, telling // regions, weights[telling % regions])
    kinds, of_warp, sizes = np.unique(signature, return_inverse=True, return_counts=True)
    common = np.flatnonzero(sizes >= _RARE * count)
    if not 1 < len(common) <= _MOST or not _within_blocks(of_warp, block_of):
        return everyone
    renumbered = np.full(len(kinds), len(common), np.int64)
    renumbered[common] = np.arange(len(common))
    of_warp = renumbered[of_warp]
    sets = [_regions_of(recorded, regions, of_warp == group) for group in range(len(common))]
    names = [_name(trace, i, sets) for i in range(len(sets))]
    if int(of_warp.max()) == len(common):
        names.append("other warps")
    return WarpGroups(tuple(names), "ranges", of_warp)


def _apart(recorded: NDArray[np.int64], regions: int, block_of: Ints) -> Bools:
    """Return the regions that only some warps of a block record, in blocks that have them."""
    warps = np.bincount(block_of)
    pairs, those = np.unique(
        block_of[recorded // regions] * regions + recorded % regions, return_counts=True
    )
    whole = np.bincount(pairs % regions, those == warps[pairs // regions], minlength=regions)
    apart: Bools = whole < _ALL * np.bincount(pairs % regions, minlength=regions)
    return apart


def _within_blocks(of_warp: NDArray[np.intp], block_of: Ints) -> bool:
    """Whether most blocks hold warps of several kinds: then the code makes them, not the data."""
    pairs = np.unique(block_of * (int(of_warp.max()) + 1) + of_warp)
    kinds = np.bincount(pairs // (int(of_warp.max()) + 1))
    return bool(np.mean(kinds > 1) > 0.5)


def _regions_of(recorded: Ints, regions: int, members: NDArray[np.bool_]) -> list[int]:
    found: list[int] = np.unique(recorded[members[recorded // regions]] % regions).tolist()
    return found


def _name(trace: Trace, group: int, sets: list[list[int]]) -> str:
    """Return a group's name, by regions that it alone records: ``"warps of copy, wait empty"``."""
    others = {region for i, each in enumerate(sets) if i != group for region in each}
    only = [region for region in sets[group] if region not in others] or sets[group]
    names = [trace.regions[region].name for region in only[:2]]
    more = f" and {len(only) - 2} more" if len(only) > 2 else ""
    return f"warps of {', '.join(names)}{more}" if names else "warps without ranges"
