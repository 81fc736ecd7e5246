"""Tables of very many regions: read in a screen, and counted exactly."""

from __future__ import annotations

import pytest

import ikp
from ikp.analysis.classes import MOST, pattern, readable
from ikp.analysis.stats import Stats
from ikp.patterns import choose
from tests.analysis.example import launch, trace
from tests.analysis.test_growth import of_regions

pytestmark = pytest.mark.any_pins


def of_names(names: list[str]) -> Stats:
    """Return the table of a launch with one range of each name, 5 ns long, in one warp."""
    rows = [(0, at, 10 * at, 10 * at + 5) for at in range(len(names))]
    return trace(
        rows,
        launches=(launch(),),
        slots=[(0, 0)],
        regions=tuple(names),
        residence=10 * len(names),
    ).stats()


@pytest.mark.parametrize("count", [MOST + 1, 50_000])
def test_regions_that_differ_in_numbers_are_one_row_whose_sums_are_exact(count: int) -> None:
    stats = of_regions(count, "task").stats()
    (row,) = readable(stats).rows
    assert (row.region, row.count, row.total_ns) == ("task *", 2 * count, 5 * 2 * count)
    assert row.mean_ns == 5 and (row.min_ns, row.max_ns) == (5, 5) and row.p50_ns is None
    assert row.share == pytest.approx(sum(each.share or 0 for each in stats))
    assert len(str(stats).splitlines()) < 20 and f"{count:,} rows in 1" in str(stats)
    assert len(stats.to_csv().splitlines()) == count + 1 == len(stats.to_dict()["rows"]) + 1


@pytest.mark.parametrize("name", ["task 7", "l[3].mm 12", "a*1", "dot", "7", "12a", "[1]"])
def test_a_class_is_named_by_the_pattern_that_chooses_its_regions(name: str) -> None:
    assert choose([name, "other"], pattern(name), "region") == [True, False]


def test_rows_that_were_asked_for_are_shown_one_by_one() -> None:
    stats = of_regions(MOST + 50).stats()
    for chosen in (stats.top(MOST + 20), stats.select(region="r *"), stats.top(10**6)):
        assert readable(chosen) is chosen and len(str(chosen).splitlines()) > len(chosen)
    assert "chosen" not in stats.top(3).to_dict()
    grouped = of_regions(MOST + 50).stats(by="warp")
    assert readable(grouped) is grouped
    few = of_regions(MOST).stats()
    assert readable(few) is few


def test_of_many_names_without_numbers_the_largest_are_shown() -> None:
    letters = [f"{chr(97 + at // 26)}{chr(97 + at % 26)}" for at in range(2 * MOST)]
    assert len(readable(of_names(letters)).rows) == MOST
    mixed = readable(of_names([*letters[:5], *(f"x{at}" for at in range(MOST))]))
    assert [row.region for row in mixed.rows] == ["x*", *letters[:5]]


def test_a_comparison_shows_the_rows_that_differ_most_and_counts_the_others() -> None:
    before, after = of_regions(MOST + 50), of_regions(MOST + 50)
    text = str(ikp.diff(before, after))
    assert len(text.splitlines()) < MOST + 20
    assert "and 51 rows more, whose time differs less: 51 even." in text
