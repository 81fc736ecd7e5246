"""``ikp.calibrate``: measures the cost of a record on a GPU by Triton kernels, or reads a cache.

``cost_figures`` computes the cost from a trace alone: that takes no GPU.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.overhead import Figure, Overhead
from ikp.core.trace import Trace
from ikp.errors import BufferError, UsageError
from ikp.session import current
from ikp.session.memory import BufferSize
from ikp.session.recorder import BufferRequest, recording
from ikp.session.wishes import Wishes
from ikp.version import __version__

SIDE_BY_SIDE, NESTED, INSTANTS, ALONE = "side by side", "nested", "instants", "alone"
FEW, MANY = 4, 12
"""Records in a range. The cost of one is the difference of ticks by that of counts. Instructions at
the range's ends are the same in both, such as stores that the pass over the PTX moved out of it."""
ROOTS = 4
"""Dependent square roots in a piece of work: about 90 cycles, longer than a record takes."""
_WARM = 4
"""A fourth of a warp's ranges, the first ones, is left out: caches are cold."""


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """One kernel to run: ``count`` records of a kind in each range, among equal work or none."""

    kind: str
    count: int

    @property
    def label(self) -> str:
        """The label of its launch."""
        return f"{self.count} {self.kind}"

    @property
    def constants(self) -> dict[str, Any]:
        """The compile-time arguments of ``ikp.calibration._kernels.records``."""
        works = self.kind != ALONE
        pieces = MANY if works else self.count
        return {
            "KIND": self.kind,
            "COUNT": self.count,
            "PIECES": pieces,
            "ROOTS": ROOTS if works else 0,
        }


_EMPTY = MeasuredKernel(ALONE, 0)
PROGRAMS = (
    _EMPTY,
    *(
        MeasuredKernel(kind, n)
        for kind in (SIDE_BY_SIDE, NESTED, INSTANTS, ALONE)
        for n in (FEW, MANY)
    ),
)


def cost_figures(trace: Trace, **facts: Any) -> Overhead:
    """Return the cost of a record by a trace of :data:`PROGRAMS`; of each, the last launch counts.

    Raises:
        UsageError: a launch is missing, or dropped records.
    """
    around = {each: _around(trace, each.label) for each in PROGRAMS}

    def inside(kind: str) -> Figure:
        return _figure(
            (around[MeasuredKernel(kind, MANY)] - around[MeasuredKernel(kind, FEW)]) / (MANY - FEW)
        )

    return Overhead(
        device=trace.launches[0].device,
        empty_range=_figure(around[_EMPTY]),
        range_inside=inside(SIDE_BY_SIDE),
        nested_inside=inside(NESTED),
        instant_inside=inside(INSTANTS),
        range_alone=inside(ALONE),
        **facts,
    )


def _around(trace: Trace, name: str) -> NDArray[np.float64]:
    """Return the ticks of the ranges "around" of a launch, warp by warp, without the first."""
    found = [i for i, launch in enumerate(trace.launches) if launch.label == name]
    if not found or trace.launches[found[-1]].dropped:
        raise UsageError(
            f"nothing can be calibrated from this trace: the launch {name!r} is missing, or "
            "records of it were dropped."
        )
    names = [region.name for region in trace.regions]
    events = trace.events
    mine = trace.slots.launch[events.slot] == found[-1]
    mine &= events.region == names.index("around")
    warps = len(np.unique(events.slot[mine]))
    ticks = events.ticks[mine].reshape(warps, -1)
    return np.asarray(ticks[:, ticks.shape[1] // _WARM :].reshape(-1), np.float64)


def _figure(ticks: NDArray[np.float64]) -> Figure:
    """Return the mean of the middle half: outliers don't count, and a timer's steps average out."""
    low, high = np.percentile(ticks, [10, 90])
    quarter = len(ticks) // 4
    middle = np.sort(ticks)[quarter : len(ticks) - quarter].mean()
    return Figure(float(middle), float(low), float(high))


_RANGES = 64
"""Ranges that each warp records, with up to ``MANY`` records in each."""
_LAUNCHES = 2
"""Launches of each kernel: the last one counts, when code and clocks are warm."""
_DRIVER = Path("/proc/driver/nvidia/version")


def calibrate(
    *,
    device: Any = None,
    clock: str = "cycles",
    overflow: str = "stop",
    schedule: bool = True,
    blocks: int = 1,
    warps: int = 1,
    cache: str | PathLike[str] | None = None,
) -> Overhead:
    """Measure the cost of recording on a GPU: run Triton kernels with and without records.

    Where warps share an SM, a record costs each of them more than it costs a single warp: give
    ``blocks`` and ``warps`` to measure that. By default one warp runs, whose cost is the least of
    any warp.

    Args:
        device: torch device; None takes the current CUDA device.
        clock: as for ``ikp.profile``; so are ``overflow`` and ``schedule``.
        overflow: when a slot is full.
        schedule: let the compiler hook place clock reads and stores.
        blocks: blocks of the kernels.
        warps: warps per block, a power of two up to 32.
        cache: a JSON file of measurements. A measurement in it for this device, driver, Triton, ikp
            and way of recording is returned without measuring; else the new one is added.

    Raises:
        BufferError: there is no GPU.
        UsageError: an option can't be used, or the file holds no measurements.
        PluginError: Triton is not installed.
    """
    options: dict[str, Any] = {
        "device": _cuda(device),
        "clock": clock,
        "overflow": overflow,
        "schedule": schedule,
    }
    key = _key(options, blocks, warps)
    known = _read(cache)
    if key not in known:
        trace, settings = run(options, blocks, warps)
        measured = cost_figures(
            trace,
            clock=clock,
            blocks=blocks,
            warps=warps,
            settings=settings,
            versions=_versions(),
        )
        if cache is None:
            return measured
        known[key] = asdict(measured)
        Path(cache).write_text(json.dumps(known, indent=1), encoding="utf-8")
    return _overhead(known[key])


@cache
def of_session(device: str, clock: str, overflow: str, schedule: bool) -> Overhead:
    """Return the cost of recording for a session's options, measured once in this process."""
    return calibrate(device=device, clock=clock, overflow=overflow, schedule=schedule)


def run(options: dict[str, Any], blocks: int = 1, warps: int = 1) -> tuple[Trace, str]:
    """Run the kernels in a session with ``options``; return the trace, and the specs as text."""
    import torch

    from ikp.calibration._kernels import records

    if not current.enabled():
        raise UsageError("nothing is recorded, so nothing can be calibrated: IKP=0 is set.")
    wishes = Wishes(**options)
    settings = set()
    with recording(wishes) as session:
        out = torch.empty(blocks * 32, device=options["device"])
        for each in PROGRAMS * _LAUNCHES:
            count = _RANGES * (each.count + 1)
            size = abi.segment_bytes(blocks * warps, count, wishes.overflow, wishes.clock)
            buffer = session.buffer(BufferRequest(each.label, room=BufferSize(size)))
            settings.add(buffer.spec_text)
            records[(blocks,)](out, _RANGES, buffer, **each.constants, num_warps=warps)
        trace, broken = session.read({})
    if broken is not None:
        raise broken
    return trace, ", ".join(settings)


def _cuda(wish: Any) -> str:
    import torch

    device = torch.device("cuda" if wish is None else wish)
    if device.type != "cuda" or not torch.cuda.is_available():
        raise BufferError(
            f"recording's overhead can't be measured on {device}: that takes a CUDA device, and "
            f"torch {'sees none' if not torch.cuda.is_available() else 'was given another'}. What "
            "was measured elsewhere can be deducted anywhere: ikp.edit.deduct_overhead(trace, "
            "overhead)."
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    return f"cuda:{index}"


def _key(options: dict[str, Any], blocks: int, warps: int) -> str:
    import torch

    from ikp.session.wishes import revision

    name = torch.cuda.get_device_name(torch.device(options["device"]))
    how = " ".join(f"{key}={value}" for key, value in options.items())
    return f"{name} {how} blocks={blocks} warps={warps} revision={revision()} {_versions()}"


def _versions() -> str:
    """Return the versions of driver, torch, Triton and ikp, on which the cost depends."""
    import torch
    import triton

    found = re.search(r"\b\d+(\.\d+)+\b", _DRIVER.read_text()) if _DRIVER.exists() else None
    driver = found[0] if found else "?"
    return (
        f"driver={driver} torch={torch.__version__} triton={triton.__version__} ikp={__version__}"
    )


def _read(path: str | PathLike[str] | None) -> dict[str, Any]:
    if path is None or not Path(path).exists():
        return {}
    try:
        known: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        for each in known.values():
            _overhead(each)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            f"{path} does not hold what ikp.calibrate measured: {error}. Name another file, or "
            "delete it."
        ) from error
    return known


def _overhead(facts: dict[str, Any]) -> Overhead:
    found: dict[str, Any] = {
        name: Figure(**value) if isinstance(value, dict) else value for name, value in facts.items()
    }
    return Overhead(**found)
