"""``Diff`` and its parts: a comparison's result as data; ``docs/comparing.md`` explains it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from ikp.printing import Printed, as_json

SCHEMA: Final = 1
"""Version of what :meth:`Diff.to_dict` returns."""
EVEN: Final = 0.01
"""Two figures are even if they surely differ by less than this part of the first one,"""
EVEN_OF_KERNEL: Final = 0.002
"""or by less than this part of all the time of a warp, and so can't matter."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure before and after: means over launches, and how far apart they surely are.

    ``low`` and ``high`` bound the difference ``after - before``, with the confidence of the
    :class:`Diff`; they are None where nothing is known, and ``why`` says why. ``verdict`` is
    ``"longer"`` or ``"shorter"`` where the bounds exclude 0, ``"even"`` where they show that no
    difference that matters is left, and else ``"unknown"``.
    """

    before: float
    after: float
    low: float | None = None
    high: float | None = None
    verdict: str = "unknown"
    why: str = ""

    @property
    def difference(self) -> float:
        """``after`` less ``before``."""
        return self.after - self.before

    def part(self, value: float | None) -> float | None:
        """Return a difference as a part of ``before``; None where that is 0 or less."""
        return None if value is None or self.before <= 0 else value / self.before

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; ``relative`` holds the difference and its bounds as parts of 1."""
        values = (self.difference, self.low, self.high)
        return {
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "low": self.low,
            "high": self.high,
            "relative": dict(
                zip(("difference", "low", "high"), map(self.part, values), strict=True)
            ),
            "verdict": self.verdict,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """The change of one region in the warps of one role.

    ``time`` is the region's self time per launch, divided by all the kernel's warps: so the rows of
    a kernel, its time in no range among them, add up to ``residence``. Where only totals were
    recorded, it includes the ranges inside. ``count`` is ranges, or instants, per launch; ``p50``
    the median over launches of each one's median. ``only`` is ``"before"`` or ``"after"`` for a
    region that the other side lacks.
    """

    role: str
    region: str
    kind: str  # "range" | "instant" | "none": the time in no range
    count: tuple[float, float] | None = None
    p50: tuple[float | None, float | None] | None = None
    time: Change | None = None
    only: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "role": self.role,
            "region": self.region,
            "kind": self.kind,
            "only": self.only or None,
            "count": self.count,
            "p50": self.p50,
            "time": self.time and self.time.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class KernelChange:
    """The change of one kernel, from its launches before to those after.

    ``design`` says which launches were compared with which: ``"alternating"``, ``"in order"``,
    ``"apart"`` or ``"runs"``. ``durations`` are those of the launches compared.
    """

    before: str  # the launch label
    after: str
    launches: tuple[int, int]  # compared
    left_out: tuple[int, int]  # outliers, not compared
    design: str
    duration: Change
    residence: Change  # of a warp, on average
    ghz: tuple[float | None, float | None]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    durations: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "before": self.before,
            "after": self.after,
            "launches": self.launches,
            "left_out": self.left_out,
            "design": self.design,
            "duration": self.duration.to_dict(),
            "residence": self.residence.to_dict(),
            "ghz": self.ghz,
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that may not grow by more than so much, such as ``"dot.p50=+3%"``.

    ``verdict`` is ``"over"`` or ``"within"`` where that is sure, and else ``"unknown"``.
    ``relative`` is the difference as a part of ``before``.
    """

    text: str
    kernel: str
    role: str
    region: str
    figure: str
    before: float | None
    after: float | None
    relative: float | None
    verdict: str
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Diff(Printed):
    """What moved from one side to the other, kernel by kernel.

    All bounds hold together with the given ``confidence``. With 0.95, of a hundred comparisons of
    equal kernels at most five say that *anything* moved.
    ``print(diff)`` shows a table.
    """

    kernels: tuple[KernelChange, ...]
    unit: str  # "ns" | "cycles": of all times
    confidence: float
    only_before: tuple[str, ...] = ()  # kernels
    only_after: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def moved(self) -> bool:
        """Whether anything surely took longer or shorter."""
        changes = (
            change
            for kernel in self.kernels
            for change in (kernel.duration, *(row.time for row in kernel.rows))
        )
        return any(one is not None and one.verdict in ("longer", "shorter") for one in changes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as ``docs/comparing.md`` lists them."""
        return {
            "schema": "ikp.diff",
            "version": SCHEMA,
            "unit": self.unit,
            "confidence": self.confidence,
            "moved": self.moved,
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "notes": list(self.notes),
            "limits": [limit.to_dict() for limit in self.limits],
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as indented JSON."""
        return as_json(self.to_dict())
