"""``Snapshot``: where each warp of the kernels that run now is, and what it did before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import numpy as np

from ikp.core.trace import Trace
from ikp.json_schema import headed
from ikp.printing import Printed, as_json

_VERSION = 1


@dataclass(frozen=True, slots=True)
class WarpPlace:
    """The place of one warp in its kernel."""

    launch: str  # label
    block: int
    warp: int
    sm: int
    role: str
    finished: bool
    open: str  # the range opened last, if no record came after it; else ""
    last: str  # the range or instant recorded last; "" if there is none
    since_ns: int  # the start of the open range, or the end of the last; on the trace's axis
    for_ns: int  # from then to the snapshot
    records: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Snapshot(Printed):
    """All records that a session's streams had kept at one time, and the place of each warp.

    It prints as a few lines per kernel: warps by the range that they are in, those first that have
    been there longest. ``trace`` has the records; a range that is open ends there at the time of
    the snapshot, under its name with ``(open)`` behind it.
    """

    trace: Trace
    taken_ns: int  # on the trace's axis: Unix time, where the GPU's clock is known
    warps: tuple[WarpPlace, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return time and warps as plain values."""
        content = {"taken_ns": self.taken_ns, "warps": [asdict(each) for each in self.warps]}
        return headed("snapshot", _VERSION, content)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return as_json(self.to_dict())

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the trace, in the format of the path's suffix.

        Raises:
            ExportError: it can't be written to ``path``.
        """
        self.trace.save(path, force=force)  # type: ignore[attr-defined]  # of ikp.trace


def places(trace: Trace, taken_ns: int, opened: Mapping[str, str]) -> Iterable[WarpPlace]:
    """Yield the place of each warp, slot by slot.

    Args:
        trace: of the snapshot.
        taken_ns: when it was taken.
        opened: the plain names of open ranges, by the names of their regions.
    """
    slots, events = trace.slots, trace.events
    past = np.searchsorted(events.slot, np.arange(len(slots)), side="right").tolist()
    first = [0, *past][: len(past)]
    names = [region.name for region in trace.regions]
    for number, (begin, end) in enumerate(zip(first, past, strict=True)):
        launch = trace.launches[int(slots.launch[number])]
        latest = [names[int(region)] for region in events.region[max(begin, end - 2) : end]]
        is_open = bool(latest) and latest[-1] in opened
        since = int(slots.start_ns[number])
        if is_open:
            since = int(events.start_ns[end - 1])
        elif latest:
            since = int(events.end_ns[end - 1])
        kept = int(slots.kept[number]) - is_open
        records = int(slots.attempted[number]) - is_open
        closed = latest[:-1] if is_open else latest
        yield WarpPlace(
            launch=launch.label,
            block=int(slots.block[number]),
            warp=int(slots.warp[number]),
            sm=int(slots.sm[number]),
            role=trace.roles[int(slots.role[number])],
            finished=bool(slots.finished[number]),
            open=opened[latest[-1]] if is_open else "",
            last=closed[-1] if closed else "",
            since_ns=since,
            for_ns=max(0, taken_ns - since),
            records=records,
            dropped=records - kept,
        )
