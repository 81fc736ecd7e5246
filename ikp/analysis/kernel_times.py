"""``kernel_times``: how many launches of each kernel a trace has, and how long they took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ikp.core.trace import Trace


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The recorded launches of one label whose times are known.

    A launch's duration is from its first warp's start to its last one's end.
    """

    label: str
    launches: int
    total_ns: int
    min_ns: int
    max_ns: int


def kernel_times(trace: Trace) -> tuple[KernelTime, ...]:
    """Return the kernels of a trace, by the time of all their launches, the longest first."""
    from ikp.core.warps import launch_bounds  # imports numpy

    first, last = launch_bounds(trace)
    took: dict[str, list[int]] = {}
    for one, begin, end in zip(trace.launches, first.tolist(), last.tolist(), strict=True):
        if end >= begin:
            took.setdefault(one.label, []).append(end - begin)
    found = (
        KernelTime(label, len(each), sum(each), min(each), max(each))
        for label, each in took.items()
    )
    return tuple(sorted(found, key=lambda one: (-one.total_ns, one.label)))
