"""Peak figures of devices from data sheets: SMs, dense tensor operations per cycle, bandwidth."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peak:
    """A device's peak figures, for 16-bit products with 32-bit sums, sparsity left out."""

    sms: int
    per_cycle: int  # 16-bit floating-point operations of an SM's tensor cores in a cycle
    gb_per_s: int  # of its memory
    warps: int = 64  # that an SM has room for


_DEVICES = {
    "H200": Peak(132, 4096, 4800),
    "H100 PCIe": Peak(114, 4096, 2000),
    "H100": Peak(132, 4096, 3350),
    "A100": Peak(108, 2048, 1935),
    "B200": Peak(148, 8192, 8000),
}
"""By a part of the name that the driver gives. NVIDIA's data sheets: H100 SXM and H200 989 TFLOPS
(132 SMs x 4096 x 1.83 GHz), A100 312 (108 x 2048 x 1.41), B200 2250 (148 x 8192 x 1.85).
Memory is that of the A100 with 80 GB for PCIe."""


def peak_of(device: str) -> Peak | None:
    """Return the peak figures of a device; None of an unknown one."""
    return next((peak for name, peak in _DEVICES.items() if name in device), None)
