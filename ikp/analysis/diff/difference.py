"""``Diff`` and its parts: a comparison's result as data; ``docs/comparing.md`` explains it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, TypedDict

from ikp.json_schema import headed
from ikp.printing import Printed, as_json
from ikp.terminal import shortened

VERSION: Final = 2
"""Version of what :meth:`Diff.to_dict` returns."""
_SHOWN: Final = 4
EVEN: Final = 0.01
"""Two figures are even if they surely differ by less than this part of the first one,"""
EVEN_OF_KERNEL: Final = 0.002
"""or by less than this part of all the time of a warp, and so can't matter."""


class PartsJson(TypedDict):
    """A difference and its bounds, as parts of the figure before."""

    difference: float | None
    low: float | None
    high: float | None


class ChangeJson(TypedDict):
    """A ``Change`` as JSON."""

    before: float
    after: float
    difference: float
    low: float | None
    high: float | None
    relative: PartsJson
    verdict: str
    why: str


class RowJson(TypedDict):
    """A ``Row`` as JSON."""

    role: str
    region: str
    kind: str
    only: str | None
    count: tuple[float, float] | None
    p50: tuple[float | None, float | None] | None
    time: ChangeJson | None


class KernelJson(TypedDict):
    """A ``KernelChange`` as JSON."""

    before: str
    after: str
    launches: tuple[int, int]
    left_out: tuple[int, int]
    design: str
    duration: ChangeJson
    residence: ChangeJson
    ghz: tuple[float | None, float | None]
    rows: list[RowJson]
    notes: list[str]


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

    def to_dict(self) -> ChangeJson:
        """Return plain values; ``relative`` holds the difference and its bounds as parts of 1."""
        return {
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "low": self.low,
            "high": self.high,
            "relative": {
                "difference": self.part(self.difference),
                "low": self.part(self.low),
                "high": self.part(self.high),
            },
            "verdict": self.verdict,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """The change of one region in the warps of one role.

    ``time`` is the region's self time per launch, divided by all warps that recorded: so the rows
    of a kernel, its time in no range among them, add up to ``residence``. Where only totals were
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

    def to_dict(self) -> RowJson:
        """Return plain values."""
        return {
            "role": self.role,
            "region": self.region,
            "kind": self.kind,
            "only": self.only or None,
            "count": self.count,
            "p50": self.p50,
            "time": None if self.time is None else self.time.to_dict(),
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

    def to_dict(self) -> KernelJson:
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


class DiffJson(TypedDict):
    """A ``Diff`` as JSON, without the head."""

    unit: str
    confidence: float
    moved: bool | None
    kernels: list[KernelJson]
    only_before: list[str]
    only_after: list[str]
    notes: list[str]
    limits: list[Limit]


@dataclass(frozen=True, slots=True, repr=False)
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

    def __repr__(self) -> str:
        shown = [f"{shortened(one.after)} {one.duration.verdict}" for one in self.kernels[:_SHOWN]]
        shown += ["..."] * (len(self.kernels) > _SHOWN)
        return f"<ikp.Diff: {', '.join(shown) or 'of no kernel'}>"

    @property
    def moved(self) -> bool | None:
        """Whether anything surely took longer or shorter; None where that is not known."""
        verdicts = {
            change.verdict
            for kernel in self.kernels
            for change in (kernel.duration, *(row.time for row in kernel.rows))
            if change is not None
        }
        if verdicts & {"longer", "shorter"}:
            return True
        return None if "unknown" in verdicts or not verdicts else False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as ``docs/comparing.md`` lists them."""
        content: DiffJson = {
            "unit": self.unit,
            "confidence": self.confidence,
            "moved": self.moved,
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "notes": list(self.notes),
            "limits": list(self.limits),
        }
        limits = [asdict(each) for each in self.limits]
        return headed("diff", VERSION, {**content, "limits": limits})

    def to_json(self) -> str:
        """Return :meth:`to_dict` as indented JSON."""
        return as_json(self.to_dict())
