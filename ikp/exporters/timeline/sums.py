"""``Sums``: totals for viewers, as one slice per warp that recorded them, from init to finish.

The totals are the slice's argument ``totals``, a dict of the regions: ``totals.dot.count``,
``totals.dot.cycles``, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.args import ArgColumn, Scalar
from ikp.core.rows import shares
from ikp.core.trace import Column, Trace

Ints = NDArray[np.int64]

NAME: Final = "totals"
"""Name of the slices, and of their argument."""


@dataclass(frozen=True, slots=True)
class Sums:
    """One entry for each region of a warp, and each kind: sorted by warp."""

    names: tuple[str, ...]  # of all regions
    slot: Ints
    region: Ints
    facts: dict[str, ArgColumn]  # values of the entries: of ranges "count", ..., or "instants"

    @classmethod
    def of(cls, trace: Trace) -> Sums:
        """Return the entries of a trace that has totals."""
        totals = trace.totals
        ranges = totals.kind == int(Kind.RANGE)
        in_cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)
        cycles = in_cycles[trace.slots.launch[totals.slot]]
        share = shares(trace)
        facts = {
            "count": _column(totals.count, ranges),
            "instants": _column(totals.count, ~ranges),
            "cycles": _column(totals.ticks, ranges & cycles),
            "ticks": _column(totals.ticks, ranges & ~cycles),
            "total_ns": _column(totals.total_ns, ranges),
            "share": _column(share, ~np.isnan(share)),  # of the warp's time; readers need it not
        }
        names = tuple(region.name or "(no name)" for region in trace.regions)
        return cls(names, totals.slot.astype(np.int64), totals.region.astype(np.int64), facts)

    def __len__(self) -> int:
        return len(self.slot)

    def slices(self) -> tuple[Ints, Ints]:
        """Return the slot of each slice, and its first entry."""
        first = np.flatnonzero(np.diff(self.slot, prepend=-1))
        return self.slot[first], first

    def by_slot(self, digits: int) -> Iterator[tuple[int, dict[str, dict[str, Scalar]]]]:
        """Yield the slot of each slice, and its entries as a dict; regions of one name are one.

        Shares have ``digits`` digits behind the point.
        """
        columns = {name: column.tolist() for name, column in self.facts.items()}
        columns["share"] = [one and round(float(one), digits) for one in columns["share"]]
        slots, first = self.slices()
        bounds = [*first.tolist(), len(self)]
        region = self.region.tolist()
        for i, slot in enumerate(slots.tolist()):
            entries: dict[str, dict[str, Scalar]] = {}
            for row in range(bounds[i], bounds[i + 1]):
                entry = entries.setdefault(self.names[region[row]], {})
                for name, column in columns.items():
                    if (value := column[row]) is not None:
                        entry[name] = value
            yield slot, entries


def _column(values: Column, given: NDArray[np.bool_]) -> ArgColumn:
    return ArgColumn(np.where(given, values, 0), given)
