"""The cost of a record, as calibrated on a device; input of ``ikp.edit.deduct_overhead``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured cost in ticks of the clock: the mean of the middle half of the measurements.

    Ticks are SM cycles, or nanoseconds of the global timer.
    """

    ticks: float
    low: float  # a tenth of the measurements is below
    high: float  # and a tenth above

    def __str__(self) -> str:
        return f"{self.ticks:.1f} ({self.low:.1f} to {self.high:.1f})"


@dataclass(frozen=True, slots=True)
class Overhead:
    """The cost of a record on one device, for one way of recording.

    ``empty_range`` is the duration of an empty range. The next three are the ticks that a record
    adds to the range around it, where the warp does other work, which hides most of a record: a
    range, a range that the next one nests in, an instant. ``range_alone`` is the ticks that a
    range adds where the warp has nothing else to do: the most that it can cost this warp.
    """

    device: str  # as in Launch.device
    clock: str  # as ikp.profile has it: "cycles", "globaltimer64", ...
    empty_range: Figure
    range_inside: Figure
    nested_inside: Figure
    instant_inside: Figure
    range_alone: Figure
    blocks: int = 1  # of the kernels that measured it
    warps: int = 1  # per block
    settings: str = ""  # how they recorded: the text of their Spec
    versions: str = ""  # of driver, torch, Triton and ikp

    @property
    def unit(self) -> str:
        """What ticks are: "cycles", or "ns"."""
        return "cycles" if self.clock.startswith("cycles") else "ns"

    @property
    def at_start(self) -> float:
        """Ticks of recording within a range: no more than it adds to the range around it."""
        return max(0.0, min(self.empty_range.ticks, self.range_inside.ticks))

    @property
    def at_end(self) -> float:
        """Ticks that a range costs after it has ended: its store, and the count."""
        return max(0.0, self.range_inside.ticks) - self.at_start

    @property
    def at_instant(self) -> float:
        """Ticks that an instant costs."""
        return max(0.0, self.instant_inside.ticks)

    def __str__(self) -> str:
        whole = self.at_start + self.at_end
        return (
            f"{self.at_start:.1f} {self.unit} in each range, {whole:.1f} for each range in it, "
            f"{self.at_instant:.1f} for each instant"
        )
