"""``ikp view`` of a part, and of files that are too large to be opened soon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ikp
from ikp.cli.main import cli
from ikp.exporters.columns import event_chunks
from ikp.exporters.columns.chunk import Chunk
from ikp.viewer import part, show
from tests.analysis.example import launch, trace
from tests.edit.test_select import example
from tests.others import without_records


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ikp.Trace]:
    """A trace named ``x.pftrace``, and what is served of it: nothing is."""
    monkeypatch.chdir(tmp_path)
    example().save("x.pftrace")
    traces: list[ikp.Trace] = []
    told = show._explain

    def explain(server: object, view: object, once: bool) -> None:
        told(server, view, once)  # type: ignore[arg-type]
        traces.append(ikp.load(server.path))  # type: ignore[attr-defined]
        server.fetched.set()  # type: ignore[attr-defined]

    monkeypatch.setattr(show, "_explain", explain)
    return traces


def view(*words: str) -> tuple[int, str]:
    options = ["--no-open", "--once", "--port", "0"]
    result = CliRunner().invoke(cli, ["view", "x.pftrace", *options, *words])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--sm", "1"], ["load_a", "dot"]),
        (["--block", "0"], ["load", "done", "load"]),
        (["--window", "9ns:"], ["load", "done", "load"]),
        (["--window", "9:10ns"], ["load", "done", "load"]),
        (["--window", ":0.004us", "--sm", "0"], ["load"]),
        (["--launch", "norm", "--window", "0:2ns"], ["load"]),
        (["--launch", "0", "--block", "1"], ["load_a", "dot"]),
    ],
)
def test_a_part_is_cut_out_and_served(
    served: list[ikp.Trace], words: list[str], wanted: list[str]
) -> None:
    code, told = view(*words)
    assert code == 0, told
    assert [ikp_region(served[0], i) for i in range(len(served[0].events))] == wanted
    assert f"Cut out of x.pftrace: {len(wanted)} of 5 ranges." in told
    assert "next: ikp stats x.pftrace" in told


def ikp_region(trace: ikp.Trace, event: int) -> str:
    return trace.regions[trace.events.region[event]].name


def test_a_launch_of_a_small_file_is_opened_on_and_the_rest_is_there(
    served: list[ikp.Trace],
) -> None:
    assert view("--launch", "norm")[0] == 0
    assert len(served[0].launches) == 2


def test_of_a_large_file_it_is_said_what_opening_takes_and_a_launch_is_served_alone(
    served: list[ikp.Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "MANY", 4)
    monkeypatch.setattr("ikp.cli._view.MANY", 4)
    code, told = view()
    assert code == 0 and "x.pftrace holds 5 ranges: the UI takes about 0 s to open it." in told
    assert "A part opens sooner: --launch 0, --sm 0, --block 0 or --window 0:100us" in told
    code, told = view("--launch", "norm")
    assert [len(one.launches) for one in served] == [2, 1]
    assert "A part opens sooner" not in told


@pytest.mark.parametrize(
    "chosen",
    [
        part.TracePart(launch=3),
        part.TracePart(launch=range(1, 3)),
        part.TracePart(sm=(2,)),
        part.TracePart(block=(1, 3)),
        part.TracePart(window_ns=(1500, 2500)),
        part.TracePart(window_ns=(None, 900), sm=(0,)),
        part.TracePart(launch=2, window_ns=(0, 99)),
    ],
)
@pytest.mark.parametrize("left_out", [0, 1])
def test_chunks_that_hold_nothing_of_a_part_are_not_read(
    chosen: part.TracePart, left_out: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where some blocks left no records, and so have no slots."""
    monkeypatch.setattr("ikp.exporters.perfetto._writer.EVENTS_AT_ONCE", 8)
    path, read = tmp_path / "x.pftrace", []
    fill = event_chunks.EventTable.fill

    def note(table: event_chunks.EventTable, chunk: Chunk) -> None:
        read.append(chunk)
        fill(table, chunk)

    monkeypatch.setattr(event_chunks.EventTable, "fill", note)
    whole = one_after_the_other(5)
    gone = {(launch, block) for launch in range(5) for block in (1,)[:left_out]}
    whole = without_records(whole, gone)
    whole.save(path)
    wanted = chosen.of(whole)
    target, count = part.write_part(path, chosen, tmp_path)
    assert 0 < len(read) < 20, "there are 20 in the file"
    found = ikp.load(target)
    assert count == len(wanted.events)
    assert list(found.ranges()) == list(wanted.ranges())


def one_after_the_other(launches: int) -> ikp.Trace:
    """Return launches a microsecond apart, of four blocks of eight ranges."""
    slots = [(number, block) for number in range(launches) for block in range(4)]
    events = [
        (slot, 0, 1000 * number + 100 * step, 1000 * number + 100 * step + 50)
        for slot, (number, _) in enumerate(slots)
        for step in range(8)
    ]
    made = trace(events, launches=tuple(launch(f"k{i}") for i in range(launches)), slots=slots)
    number = made.slots.launch.astype(np.int64)
    begin = made.slots.start_ns + 1000 * number
    moved = replace(
        made.slots, start_ns=begin, end_ns=begin + 800, sm=made.slots.block.astype("i4")
    )
    return replace(made, slots=moved)


def test_of_very_many_ranges_it_is_said_that_they_may_be_too_many() -> None:
    first, _ = part.opening(Path("x.pftrace"), 20_000_000, 1)
    assert "20,000,000 ranges: the UI takes about 86 s" in first and "too much" in first
    assert part.opening(Path("x.pftrace"), 1_000_000, 1) == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--window", "5:6"], 2, "'5' has no unit: say ns, us, ms or s."),
        (["--window", "6us:5us"], 2, "'6us:5us' ends before it begins."),
        (["--window", "6us"], 2, "'6us' is no window"),
        (["--window", "6us:x"], 2, "'6us:x' is no window"),
        (["--window", ":"], 2, "':' is no window"),
        (["--window", "1s:2s"], 1, "nothing ran from 1,000,000,000 to 2,000,000,000 ns"),
        (["--sm", "7"], 1, "no warp has sm=(7,)"),
        (["--sm", "1", "--print"], 1, "`ikp convert` cuts a part into a file"),
    ],
)
def test_what_cannot_be_cut_is_told(
    served: list[ikp.Trace], words: list[str], code: int, message: str
) -> None:
    found, told = view(*words)
    assert found == code and message in told
    assert served == []


def test_a_trace_of_another_tool_is_not_cut(served: list[ikp.Trace]) -> None:
    Path("x.pftrace").write_bytes(b"\x0a\x02\x08\x01")
    code, told = view("--sm", "0")
    assert code == 1 and "need a trace that ikp wrote" in told


def test_convert_cuts_a_window_into_a_file(served: list[ikp.Trace]) -> None:
    result = CliRunner().invoke(cli, ["convert", "x.pftrace", "y.pftrace", "--window", ":4ns"])
    assert result.exit_code == 0, result.stderr
    assert [one.label for one in ikp.load("y.pftrace").launches] == ["gemm"]


def test_of_many_launches_those_are_served_whose_rows_the_ui_has_memory_for(
    served: list[ikp.Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule: what is opened fits, and what is left out is said."""
    one_after_the_other(9).save("x.pftrace", force=True)
    assert "launches" not in view()[1].partition("It opens")[0]
    monkeypatch.setattr(part, "MANY_ROWS", 20)
    for words, labels in (((), ["k0", "k1"]), (("--launch", "k7"), ["k7", "k8"])):
        code, told = view(*words)
        assert code == 0 and [one.label for one in served[-1].launches] == labels
        first = int(labels[0][1:])
        assert f"launches {first} to {first + 1} of 9" in told and "--launch N" in told
    assert view("--sm", "0")[0] == 0 and len(served[-1].launches) == 9


@pytest.mark.parametrize(
    ("rows", "first", "most", "wanted"),
    [
        ([5, 5, 5], 0, 15, None),
        ([5, 5, 5], 0, 14, range(2)),
        ([5, 5, 5], 1, 14, range(1, 3)),
        ([50, 5], 0, 14, range(1)),
        ([], 0, 14, None),
    ],
)
def test_as_many_launches_are_served_as_fit_and_one_always(
    monkeypatch: pytest.MonkeyPatch, rows: list[int], first: int, most: int, wanted: range | None
) -> None:
    monkeypatch.setattr(part, "MANY_ROWS", most)
    assert part.with_rows_for(rows, first) == wanted
