"""What the UI is told to open on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ikp.core.trace import Trace
from ikp.errors import ExportError
from ikp.exporters.perfetto import PerfettoExporter
from ikp.exporters.perfetto.first_look import query, shown
from ikp.exporters.perfetto.reader import ForeignError, Head, read_head
from tests.exporters.perfetto.examples import START, launch, nothing, warps
from tests.others import without_records

WAVES = [(sm, 1000 * wave + sm, 1000 * wave + 900 + sm) for wave in range(3) for sm in (7, 4, 5)]
LATE = [(4, 2000, 2900)]
"""A second lane of SM 4 that is used in the last wave only."""


def many(labels: list[str], apart: int = 1_000_000) -> Trace:
    """Return launches of three waves on three SMs, one after another."""
    blocks = (WAVES + LATE) * len(labels)
    trace = warps([[(start + 10, start + 20)] for _, start, _ in blocks], blocks=blocks)
    number = np.repeat(np.arange(len(labels)), len(WAVES + LATE)).astype(np.int32)
    slots = trace.slots
    moved = replace(
        slots,
        launch=number,
        start_ns=slots.start_ns + apart * number,
        end_ns=slots.end_ns + apart * number,
    )
    events = replace(
        trace.events,
        start_ns=trace.events.start_ns + apart * number,
        end_ns=trace.events.end_ns + apart * number,
    )
    launches = tuple(launch(label, warps_per_block=1) for label in labels)
    return replace(trace, launches=launches, slots=moved, events=events)


def head(trace: Trace, folder: Path) -> Head:
    path = folder / "x.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    return read_head(path)


def test_blocks_without_records_make_waves_but_have_no_warps_to_expand(tmp_path: Path) -> None:
    whole = many(["a"])
    some = without_records(whole, {(0, block) for block in range(10) if block != 5})
    window = ("visStart", "visEnd")
    one, other = (query(head(trace, tmp_path), 0) for trace in (whole, some))
    assert [one[name] for name in window] == [other[name] for name in window]
    assert commands(one)[-1][1] == "^SM 4( |$)" and commands(other)[-1][1] == "^SM 5( |$)"


def commands(found: dict[str, str]) -> list[tuple[str, ...]]:
    return [
        (one["id"].removeprefix("dev.perfetto."), *one["args"])
        for one in json.loads(found["startupCommands"])
    ]


def test_it_is_the_first_wave_and_a_margin(tmp_path: Path) -> None:
    found = query(head(many(["gemm", "norm"]), tmp_path), 1)
    start = START + 1_000_000 + 4
    assert START + 1_000_000 - 60 < int(found["visStart"]) < start
    assert start + 900 < int(found["visEnd"]) < start + 1000 + 20
    assert commands(found) == [
        ("ExpandTracksByRegex", "^launches · NVIDIA H200$"),
        ("ExpandTracksByRegex", "^norm$"),
        ("ExpandTracksByRegex", "^SM 4( |$)"),
    ]


def test_the_window_is_within_the_file(tmp_path: Path) -> None:
    """The UI ignores one that is not."""
    trace = warps([[(1, 9)]], blocks=[(0, 0, 10)])
    found = query(head(trace, tmp_path), 0)
    assert (int(found["visStart"]), int(found["visEnd"])) == (START, START + 10)
    assert "visStart" not in query(head(warps([[]], blocks=[(0, 5, 5)]), tmp_path), 0)


COUNTERS = "^(resident|active) (recorded )?(blocks|warps)$"


def test_a_launch_far_down_gets_a_workspace_of_its_own(tmp_path: Path) -> None:
    """With the counters of its device, where all are of this device."""
    found = commands(query(head(many(["k"] * 8), tmp_path), 6))
    row = f"k #{6}"
    own = f"launch 6: {row}"
    assert found[:3] == found[5:] and found[1] == ("ExpandTracksByRegex", f"^{row}$")
    assert found[3:5] == [
        ("CopyTracksToWorkspaceByRegexWithAncestors", f"^{row}$|{COUNTERS}", own),
        ("SwitchWorkspace", own),
    ]
    assert len(commands(query(head(many(["k"] * 8), tmp_path), 5))) == 3
    made = many(["k"] * 8)
    others = (*made.launches[:7], replace(made.launches[7], device="another"))
    _, _, _, copied, *_ = commands(query(head(replace(made, launches=others), tmp_path), 6))
    assert copied[1] == f"^{row}$"


@pytest.mark.parametrize("label", ["gemm<128, 64>(a+b)", "a.b*c?", "x\\y|z^$[0]{1}/", "測量"])
def test_names_are_matched_as_they_are(label: str, tmp_path: Path) -> None:
    (_, row), *_ = commands(query(head(many([label]), tmp_path), 0))[1:]
    assert re.search(row, label) and not re.search(row, label + "x")


def test_ranges_are_not_read_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ikp.exporters.columns.event_chunks.EventTable.fill", None)
    found = head(many(["gemm"] * 3), tmp_path)
    assert [one.row for one in shown(found)] == [f"gemm #{i}" for i in range(3)]


def test_launches_of_which_no_block_ran(tmp_path: Path) -> None:
    found = query(head(nothing(launches=(launch(),)), tmp_path), 0)
    assert found.keys() == {"startupCommands"}
    assert shown(head(nothing(), tmp_path)) == []


def test_what_is_no_trace_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x0a\x02\x08\x01")  # a packet of somebody else
    with pytest.raises(ForeignError, match="ikp did not write it"):
        read_head(path)
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ExportError, match="a file of another kind"):
        read_head(path)
