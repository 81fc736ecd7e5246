"""``Tally``: statistics of one trace or of many, with sketches of durations, in a form that merges.

Counts, sums, least and most are exact. Percentiles come from sketches (DDSketch), and are off by at
most :data:`RELATIVE_ERROR`: a sketch counts values in bins whose bounds grow by a fixed ratio.
Sketches of two sets of values add up to that of both, bin by bin: in any order, and however the
values were divided.

A tally is as large as the table that it becomes, however many ranges it counts, and travels between
processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.evidence import Evidence, plural
from ikp.analysis.stats import RegionStats, Residence, Stats
from ikp.errors import UsageError

if TYPE_CHECKING:
    import pandas
    from ddsketch import DDSketch


RELATIVE_ERROR: Final = 0.005
"""A percentile is at most this share off the duration at its rank. 60 years of nanoseconds take
4,200 bins then, 10 to 100 us take 230."""


def new_sketch() -> DDSketch:
    """Return an empty sketch."""
    from ddsketch import DDSketch

    return DDSketch(RELATIVE_ERROR)


def sketches(group: NDArray[Any], values: NDArray[np.int64]) -> dict[int, DDSketch]:
    """Return a sketch of the values of each group that occurs, by its number.

    All values are put into bins at once. A bin is then added to its sketch as its middle value,
    times the number of values in it.
    """
    if not len(values):
        return {}
    bins = _bins(values)
    least, width = int(bins.min()), int(bins.max() - bins.min()) + 1
    place, count = _counted(group * np.int64(width) + (bins - least))
    found: dict[int, DDSketch] = {}
    rows = zip((place // width).tolist(), (place % width + least).tolist(), count, strict=True)
    for number, one, times in rows:
        if number not in found:
            found[number] = new_sketch()
        found[number].add(_middle(one), times)
    return found


_GAMMA: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_NONE: Final = -1
"""The bin of durations of 0: that of 1 ns is 0."""


def _bins(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin that a sketch puts each value in: bin i ends with gamma ** i."""
    ends = np.ceil(np.log(np.maximum(values, 1)) / np.log(_GAMMA))
    bins: NDArray[np.int64] = ends.astype(np.int64)
    bins[values <= 0] = _NONE
    return bins


def _middle(one: int) -> float:
    """Return the value of a bin with the least relative distance to all others in it."""
    return 0.0 if one == _NONE else 2 * _GAMMA**one / (1 + _GAMMA)


def _counted(places: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
    """Return which places occur, ascending, and how often: by a sort where few of them do."""
    if int(places.max()) > _SPARSE * len(places) + _FEW:
        found, count = np.unique(places, return_counts=True)
        return found, count.tolist()
    count = np.bincount(places)
    found = np.flatnonzero(count)
    return found, count[found].tolist()


_SPARSE, _FEW = 4, 1 << 16


def sketched_quantile(sketch: DDSketch, q: float) -> float:
    """Return the value at a quantile of a sketch that is not empty."""
    value = sketch.get_quantile_value(q)
    return np.nan if value is None else float(value)


_SHOWN: Final = 5
"""Files and notes that are named; more are counted."""

RowKey = tuple[str, str, str, str, bool]
"""Launch label, region, kind, group, and whether it is of totals."""
Place = tuple[str, str]
"""Launch label and group."""


@dataclass(frozen=True, slots=True, eq=False)
class TallyRow:
    """A row of a table without figures that don't add up, and the sketches for its percentiles."""

    figures: RegionStats
    times: DDSketch | None = None
    cycles: DDSketch | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """The evidence of a launch label, and a sketch of its launches' durations."""

    evidence: Evidence
    durations: DDSketch


@dataclass(frozen=True, slots=True)
class Lost:
    """A file that is not counted, and why."""

    file: str
    why: str

    def message(self) -> str:
        """Return both in one sentence."""
        return self.why if self.file in self.why else f"{self.file}: {self.why}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tally:
    """Statistics that merge: of a file, or of several. :meth:`stats` makes a table of them.

    ``files`` is how many are counted. ``lost`` are the files that could not be counted, with the
    reason of each. ``without`` is how many held nothing that was chosen, with one reason.
    """

    files: int = 0
    rows: Mapping[RowKey, TallyRow] = field(default_factory=dict)
    labels: Mapping[str, Label] = field(default_factory=dict)
    residence: Mapping[Place, Residence] = field(default_factory=dict)
    about: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()
    without: tuple[int, str] = (0, "")

    def __repr__(self) -> str:
        return f"<Tally of {plural(self.files, 'file')}: {plural(len(self.rows), 'row')}>"

    def stats(self) -> Stats:
        """Return the table of all that was counted, as ``Trace.stats()`` does of one trace.

        Raises:
            UsageError: nothing was counted; the message says why.
        """
        if not self.files:
            raise UsageError(self._nothing())
        evidence = tuple(_finished(label) for label in self.labels.values())
        of_label = {one.launch: one for one in evidence}
        rows = tuple(
            _shares(_figures(row, of_label[row.figures.launch]), self.residence)
            for row in self.rows.values()
        )
        about = (*self._notes(), *self.about[:_SHOWN], *_more(self.about, "more notes"))
        table = Stats(rows, evidence, about, tuple(self.residence.values()))
        of_warps = all((row.launch, row.group) in self.residence for row in rows)
        return table.sorted_by("total" if of_warps else "order")

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows of :meth:`stats` as a DataFrame, a row per launch label and region.

        The column ``relative_error`` says how far off the percentiles of a row may be, as a share
        of each; it is missing where there are none. Needs ``pip install 'ikp[pandas]'``.

        Raises:
            UsageError: nothing was counted, or pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise UsageError(
                "a DataFrame needs pandas, which is not installed. Do: pip install 'ikp[pandas]'"
            ) from error
        frame = pandas.DataFrame([asdict(row) for row in self.stats()])
        return frame.assign(relative_error=frame["p50_ns"].notna().map({True: RELATIVE_ERROR}))

    def _notes(self) -> Iterator[str]:
        """Yield notes on the table: how many files it is of, how exact it is, which are missing."""
        yield (
            f"{plural(self.files, 'file')} counted together; percentiles are within "
            f"{100 * RELATIVE_ERROR:g} % of a range's time, all else is exact."
        )
        if self.lost:
            yield self.missing()
        if self.without[0]:
            yield f"{plural(self.without[0], 'file')} hold nothing that was chosen."

    def missing(self) -> str:
        """Return in words which files are not counted, and why; empty if all are."""
        if not self.lost:
            return ""
        return f"{plural(len(self.lost), 'file')} not counted: {_listed(self.lost)}"

    def _nothing(self) -> str:
        if self.without[0]:
            return self.without[1]
        if self.lost:
            return f"no file could be counted: {_listed(self.lost)}"
        return "there is no file to count: name at least one."


def _listed(lost: Iterable[Lost]) -> str:
    found = [one.message() for one in lost]
    return " ".join([*found[:_SHOWN], *_more(found, "more")])


def _more(found: list[str] | tuple[str, ...], what: str) -> list[str]:
    left = len(found) - _SHOWN
    return [f"And {left:,} {what}."] if left > 0 else []


def _finished(label: Label) -> Evidence:
    found = label.evidence
    if not label.durations.count:
        return found
    middle = sketched_quantile(label.durations, 0.5)
    least, most = float(found.duration_min_ns), float(found.duration_max_ns)
    return replace(found, duration_ns=min(max(middle, least), most))


def _figures(row: TallyRow, evidence: Evidence) -> RegionStats:
    """Return a row with its means and percentiles, from its sums and sketches."""
    found = replace(row.figures, launches=evidence.launches)
    if found.total_ns is not None:
        found = replace(found, mean_ns=found.total_ns / found.count)
    if row.times is not None:
        p50, p95, p99 = (_within(found, sketched_quantile(row.times, q)) for q in (0.5, 0.95, 0.99))
        found = replace(found, p50_ns=p50, p95_ns=p95, p99_ns=p99)
    if found.total_cycles is None or not evidence.counts_cycles:
        return replace(found, total_cycles=None)
    found = replace(found, mean_cycles=found.total_cycles / found.count)
    if row.cycles is not None:
        p50, p95 = (sketched_quantile(row.cycles, q) for q in (0.5, 0.95))
        found = replace(found, p50_cycles=p50, p95_cycles=p95)
    return found


def _within(row: RegionStats, value: float) -> float:
    """Return a percentile clamped to the row's exact least and most."""
    if row.min_ns is None or row.max_ns is None:
        return value
    return min(max(value, float(row.min_ns)), float(row.max_ns))


def _shares(row: RegionStats, residence: Mapping[Place, Residence]) -> RegionStats:
    # Iterations and windows have the residence time of all the label's warps.
    of_group = residence.get((row.launch, row.group)) or residence[row.launch, ""]
    ran = of_group.residence_ns
    if not ran or row.total_ns is None:
        return row
    own = None if row.self_ns is None else row.self_ns / ran
    return replace(row, share=row.total_ns / ran, self_share=own)
