"""Peak figures of devices: SMs, operations of each unit in a cycle, bandwidths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Peak:
    """A device's peak figures, for 16-bit products with 32-bit sums, sparsity left out."""

    sms: int
    per_cycle: int  # 16-bit floating-point operations of an SM's tensor cores in a cycle
    gb_per_s: int  # of its memory
    warps: int = 64  # that an SM has room for
    l2_gb_per_s: int = 5500  # of the L2 cache for scattered sectors, as microbenchmarks measure it
    l2_bytes: int = 64  # that an SM can get from L2 in a cycle
    l2_mb: int = 50
    fp64: float = 0.5  # cycles of an SM for a warp's instruction in double precision


_DEVICES = {
    "H200": Peak(132, 4096, 4800),
    "H100 PCIe": Peak(114, 4096, 2000, l2_gb_per_s=4500),
    "H100": Peak(132, 4096, 3350),
    "A100": Peak(108, 2048, 1935, l2_gb_per_s=4500, l2_mb=40, fp64=1.0),
    "B200": Peak(148, 8192, 8000, l2_gb_per_s=9000, l2_mb=126),
}
"""By a part of the name that the driver gives. NVIDIA's data sheets: H100 SXM and H200 989 TFLOPS
(132 SMs x 4096 x 1.83 GHz), A100 312 (108 x 2048 x 1.41), B200 2250 (148 x 8192 x 1.85).
Memory is that of the A100 with 80 GB for PCIe."""


MOST_BLOCKS: Final = 32
"""Blocks that an SM has room for, however small they are."""


def peak_of(device: str) -> Peak | None:
    """Return the peak figures of a device; None of an unknown one."""
    return next((peak for name, peak in _DEVICES.items() if name in device), None)


def most_blocks(device: str, warps: int) -> int | None:
    """Return how many blocks of so many warps an SM has room for, by the device alone.

    None of an unknown device.
    """
    peak = peak_of(device)
    return max(min(peak.warps // warps, MOST_BLOCKS), 1) if peak else None


CYCLES: Final = {
    "fma": 0.25,
    "half": 0.25,
    "product": 0.5,
    "integer": 0.5,
    "convert": 0.5,
    "convert.64": 2.0,
    "xu": 2.0,
    "shuffle": 1.0,
    "divide": 0.5,
    "uniform": 0.25,
    "branch": 0.25,
}
"""Cycles of an SM for one warp's instruction of a unit, sm_80 to sm_100: 32 over its results per
cycle in the CUDA C++ Programming Guide's table of arithmetic instructions."""
ISSUE: Final = 0.25
"""Cycles of an SM to issue an instruction: each of four schedulers issues one in a cycle."""

_LATENCIES: Final = {
    "fp64": 8.0,
    "convert.64": 12.0,
    "xu": 20.0,
    "shuffle": 25.0,
    "tensor": 16.0,
    "load.shared": 30.0,
    "load.local": 40.0,
    "store.local": 40.0,
    "load.global": 60.0,
    "atomic": 60.0,
}
_USUAL: Final = 4.5


def latency(unit: str) -> float:
    """Return the cycles for which an instruction of a unit holds its warp up, about.

    As microbenchmarks measure it on sm_80 and sm_90. Of global memory a few loads are under way at
    once, and caches serve most.
    """
    kind = ".".join(unit.split(".")[:2])
    return _LATENCIES.get(kind, _LATENCIES.get(unit.split(".", maxsplit=1)[0], _USUAL))
