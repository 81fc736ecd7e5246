"""What recording itself costs, as measured on a device: what ``ikp.edit.deduct_overhead`` takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured cost in ticks of the clock: the median, and where nine tenths of it lie between.

    Ticks are SM cycles, or nanoseconds of the global timer.
    """

    ticks: float
    low: float  # a tenth of what was measured is below
    high: float  # and a tenth above

    def __str__(self) -> str:
        return f"{self.ticks:.1f} ({self.low:.1f} to {self.high:.1f})"


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a record costs on one device, for one way of recording.

    ``empty_range`` is what a range with nothing in it shows: of every range, so much is not the
    user's. ``range_inside`` is what a range adds to the one around it, where ranges stand side by
    side, ``nested_inside`` where each stands in the other; it holds an ``empty_range``.
    ``instant_inside`` is what an instant adds.
    """

    device: str  # as in Launch.device
    clock: str  # as ikp.profile has it: "cycles", "globaltimer64", ...
    empty_range: Figure
    range_inside: Figure
    nested_inside: Figure
    instant_inside: Figure
    blocks: int = 1  # of the kernels that measured it
    warps: int = 1  # per block
    settings: str = ""  # how they recorded: the text of their Spec
    versions: str = ""  # of driver, torch, Triton and ikp

    @property
    def at_end(self) -> float:
        """Ticks that a range costs after it has ended: its store, and the count."""
        return max(0.0, self.range_inside.ticks - self.empty_range.ticks)

    def __str__(self) -> str:
        unit = "cycles" if self.clock.startswith("cycles") else "ns"
        return (
            f"{self.empty_range.ticks:.1f} {unit} in each range, {self.range_inside.ticks:.1f} for "
            f"each range in it, {self.instant_inside.ticks:.1f} for each instant"
        )
