"""Launches and another profiler's records of them, on clocks that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ikp.core.host_trace import HostSlice, HostTrace, HostTrack
from ikp.core.trace import Slots, make_columns
from ikp.trace import Trace
from tests.analysis.example import START, launch, trace

KERNELS = ("gemm", "norm", "softmax")
STREAM = HostTrack("GPU 0", "stream 7")
THREAD = HostTrack("python 12", "thread 12")


def launches(
    begins: Sequence[int], bound_ns: float | None = 1000.0, timer: Callable[[int], int] = int
) -> Trace:
    """Return launches of three kernels in turn, 2 us each, that begin so many ns after ``START``.

    ``timer`` gives what the clock of the trace shows at a Unix time.
    """
    made = []
    for number in range(len(begins)):
        one = launch(KERNELS[number % 3], device="gpu")
        made.append(replace(one, clock=replace(one.clock, unix_bound_ns=bound_ns)))
    rows: dict[str, Any] = dict.fromkeys(Slots.__slots__, np.zeros(len(begins)))
    rows["launch"] = np.arange(len(begins))
    rows["start_ns"] = [timer(START + begin) for begin in begins]
    rows["end_ns"] = [timer(START + begin + 2000) for begin in begins]
    none = trace([], launches=tuple(made), slots=[(0, 0)])
    return replace(none, slots=make_columns(Slots, **rows))


def records(
    begins: Sequence[int],
    names: Sequence[str] | None = None,
    base_ns: int | None = START - 5_000_000,
    late_ns: int = 0,
) -> HostTrace:
    """Return the call and the record of each launch: 300 ns around it."""
    made = []
    for number, begin in enumerate(begins):
        name = KERNELS[number % 3] if names is None else names[number]
        at = START + begin - (START - 5_000_000) + late_ns
        shape = {"grid": [2, 2, 1], "block": [32, 1, 1]}
        made.append(HostSlice(1, "cuLaunchKernel", "cuda_driver", at - 9000, at - 8000, number + 1))
        made.append(HostSlice(0, name, "kernel", at - 300, at + 2300, number + 1, shape))
    return HostTrace("host.json", base_ns, (STREAM, THREAD), tuple(made))
