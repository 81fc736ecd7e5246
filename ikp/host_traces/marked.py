"""Finds the kernel record of each launch that is marked, by the thread and CUPTI's correlation id.

A mark is a range of the host in the launching thread, made by ``ikp.session.launch_marks``. The
call that launches ends after it, and calls before it have ended: the mark is within the CUDA
runtime's call, or right before the driver's. CUPTI gives that call and its kernel one id.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ikp.core.host_trace import HostSlice

NAMED: Final = "ikp launch "
"""The name of a mark, before the launch's number."""
_CALLS: Final = ("cuda_runtime", "cuda_driver")
_LAUNCHES: Final = re.compile(r"cu(da)?Launch(Cooperative)?Kernel")


@dataclass(slots=True)
class Marks:
    """The marks of a file."""

    _found: list[HostSlice] = field(default_factory=list)

    def takes(self, one: HostSlice) -> bool:
        """Take a slice that is a mark, which no viewer is to show."""
        is_mark = one.name.startswith(NAMED) and one.name[len(NAMED) :].isdecimal()
        if is_mark:
            self._found.append(one)
        return is_mark

    def numbers(self, slices: Sequence[HostSlice]) -> Mapping[int, int]:
        """Return by the index of a kernel's record the number of its launch.

        Of several marks before a call, the last one is its. Of several calls with one number, the
        last one: the same buffer was launched with again.
        """
        if not self._found:
            return {}
        kernels = defaultdict[int | None, list[int]](list)
        calls = defaultdict[int, list[HostSlice]](list)
        for index, each in enumerate(slices):
            if each.correlation is not None and each.is_kernel:
                kernels[each.correlation].append(index)
            elif each.category in _CALLS and _LAUNCHES.match(each.name):
                calls[each.track].append(each)
        last = {number: kernels[call] for call, number in self._marked(calls).items()}
        return {found[0]: number for number, found in last.items() if len(found) == 1}

    def _marked(self, calls: Mapping[int, list[HostSlice]]) -> dict[int | None, int]:
        """Return the number that marks each call, by the call's correlation."""
        marked = dict[int | None, int]()
        for track, marks in self._by_track().items():
            some = sorted(calls.get(track, ()), key=lambda call: call.end_ns)
            ends = [call.end_ns for call in some]
            for mark in marks:
                if (at := bisect_left(ends, mark.start_ns)) < len(some):
                    marked[some[at].correlation] = int(mark.name[len(NAMED) :])
        return marked

    def _by_track(self) -> Mapping[int, list[HostSlice]]:
        made = defaultdict[int, list[HostSlice]](list)
        for each in sorted(self._found, key=lambda mark: mark.start_ns):
            made[each.track].append(each)
        return made
