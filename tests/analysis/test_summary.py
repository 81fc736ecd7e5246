"""What a trace looks like in a console and in a notebook, and what ``==`` means."""

from __future__ import annotations

from html.parser import HTMLParser

from ikp.core.trace import ClockFit
from tests.analysis.example import launch, trace
from tests.totals import gemm as summed

EVENTS = [(0, 0, 0, 100), (0, 1, 100, 400), (0, 2, 500, 500)]
HOSTILE = "<script>alert(1)</script>\x1b[2J\n&"


class Cells(HTMLParser):
    """The texts of a table's cells, row by row, and every tag there is."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_a_trace_shows_itself_in_three_lines() -> None:
    assert repr(trace(EVENTS)).splitlines() == [
        "<ikp.Trace of 1 launch: gemm on NVIDIA H200",
        " 2 ranges, 1 instant of 3 regions in 4 warps, 0 dropped",
        " 1.00 us from start to end; see .stats(), .view(), .save(path)>",
    ]


def test_three_lines_whatever_is_in_it() -> None:
    many = tuple(launch(f"{HOSTILE}{i}{'x' * 10_000}", device=HOSTILE) for i in range(9))
    for made in (trace([], launches=()), trace(EVENTS, launches=many), summed()):
        text = repr(made)
        assert len(text.splitlines()) == 3 and len(text) < 600
        assert "\x1b" not in text
    assert "4 more" not in repr(trace(EVENTS)) and "6 more" in repr(trace(EVENTS, launches=many))


def test_tables_of_columns_show_their_size() -> None:
    made = trace(EVENTS * 100)
    assert repr(made.events).startswith("<Events: 300 rows of slot, region, kind")
    assert len(repr(made.slots)) < 200 and len(repr(made.totals)) < 200


def test_comparing_traces_never_raises() -> None:
    made, other = trace(EVENTS), trace(EVENTS)
    assert [one == made for one in (made, other)] == [True, False]
    assert [one == made.events for one in (made.events, other.events)] == [True, False]
    assert len({made, made, other}) == 2


def test_a_notebook_shows_the_table_and_runs_nothing_of_it() -> None:
    made = trace(EVENTS, regions=("load", HOSTILE, "tile"), launches=(launch(HOSTILE),))
    found = Cells(made._repr_html_())
    assert found.tags == {"pre", "table", "thead", "tbody", "tr", "th", "td", "small", "br"}
    escaped = HOSTILE.replace("\x1b", r"\x1b").replace("\n", r"\n")
    assert [row[0].partition(": 1.00 us")[0] for row in found.rows[1:]] == [
        *(escaped, escaped, "load", "tile (instant)")
    ]
    assert found.rows[0][:4] == ["region", "count", "share", "self"]
    assert found.rows[2][1:4] == ["1", "7.5 %", "7.5 %"]
    assert "\x1b" not in made._repr_html_()


def test_totals_and_clocks_without_cycles_have_a_table_too() -> None:
    host = launch(clock=ClockFit("host", 1.0, "exact"))
    assert "cycles" not in trace(EVENTS, launches=(host,))._repr_html_()
    assert "<td" in summed()._repr_html_()
