"""``ikp view --finding``: the UI opens on the place that a finding of the verdict names."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

import ikp
from ikp.cli._place_of_finding import place_of_finding
from ikp.cli.main import cli
from ikp.errors import UsageError
from ikp.viewer import part, show
from ikp.viewer.first_look import FirstLook, first_look
from tests.analysis.explain.launches import START, Scene, Warp
from tests.trace_processor import columns, open_trace

LAUNCHES = 7
"""So many that the last ones get a workspace of their own."""
FIRST = 1_000
"""The first start of the first launch."""


def scene() -> Scene:
    """Return launches of two blocks at once on each of four SMs; the last block runs for long."""
    found = Scene()
    for number in range(LAUNCHES):
        zero = FIRST + 100_000 * number
        for block in range(8):
            for warp in range(2):
                start, end = zero + block, zero + (40_000 if block == 7 else 5_000 + block)
                turns = range(start + 10, end - 1_000, 1_000)
                ranges = [(f"dot of {warp}", begin, begin + 900) for begin in turns]
                found.add(Warp(block, warp, block % 4, start, end, ranges, launch=number))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "x.pftrace"
    scene().trace(kept=134).save(file)
    return file


def tracks(look: FirstLook) -> dict[str, str]:
    """Return the SQL of each row that the UI is told to add, by the row's name."""
    commands = json.loads(look.query["startupCommands"])
    added = [one["args"] for one in commands if one["id"] == "dev.perfetto.AddDebugSliceTrack"]
    return {name: sql for sql, name in added}


@pytest.mark.any_pins
@pytest.mark.tp
@pytest.mark.parametrize("launch", [None, "0", "6"])
def test_its_window_and_all_ranges_of_its_warp_alone_are_on_top(
    path: Path, launch: str | None
) -> None:
    number = int(launch or 3)  # without --launch that of median duration
    first = ikp.load(path).explain(number).findings[0]
    assert first.where.window_ns is not None and first.where.warps[0] == (7, 0)
    found = place_of_finding(path, 1, launch)
    look = first_look(path, str(found.launch), found.place)
    zero = START + FIRST + 100_000 * number
    low, high = (zero + each for each in first.where.window_ns)
    assert found.launch == number and first.title in found.words
    assert int(look.query["visStart"]) <= low < high <= int(look.query["visEnd"])
    rows = tracks(look)
    with open_trace(path) as processor:
        (ts,), (dur,), (name,) = columns(processor, rows["finding 1"]).values()
        shown = columns(processor, rows["block 7 warp 0"])
    assert (ts, ts + dur, name) == (low, high, f"{first.title} [{first.id}]")
    wanted = [
        (zero + one[1] - FIRST - 100_000 * number, one[2] - one[1], one[0])
        for one in next(
            each for each in scene().warps if (each.launch, each.block, each.warp) == (number, 7, 0)
        ).ranges
    ]
    assert sorted(zip(*(shown[each].tolist() for each in ("ts", "dur", "name")), strict=True)) == (
        wanted
    )


@pytest.mark.any_pins
@pytest.mark.parametrize(
    ("number", "launch", "why"), [(99, None, "has no finding 99"), (1, "no", "no")]
)
def test_a_finding_that_is_not_there_is_told(
    path: Path, number: int, launch: str | None, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        place_of_finding(path, number, launch)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ikp.Trace, str]]:
    """Return what is served, and the address of the UI: nothing is fetched."""
    found: list[tuple[ikp.Trace, str]] = []

    def explain(server: object, _view: object, _once: bool) -> None:
        found.append((ikp.load(server.path), server.ui_url))  # type: ignore[attr-defined]
        server.fetched.set()  # type: ignore[attr-defined]

    monkeypatch.setattr(show, "_explain", explain)
    return found


def view(*words: str) -> tuple[int, str]:
    options = ["--no-open", "--once", "--port", "0"]
    result = CliRunner().invoke(cli, ["view", *options, *words])
    return result.exit_code, result.stderr


@pytest.mark.parametrize("most", [part.MANY, 100])
def test_of_a_large_file_its_launch_is_served_alone(
    path: Path,
    served: list[tuple[ikp.Trace, str]],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    monkeypatch.setattr("ikp.cli._view.MANY", most)
    code, told = view(str(path), "--finding", "1")
    assert code == 0, told
    ((trace, address),) = served
    assert len(trace.launches) == (1 if most == 100 else LAUNCHES)
    assert "AddDebugSliceTrack" in address and "block%207%20warp%200" in address
    assert quote("^kernel$" if most == 100 else f"^kernel #{3}$") in address


def test_it_says_where_by_itself(path: Path, tmp_path: Path) -> None:
    code, told = view(str(path), "--finding", "1", "--sm", "0")
    assert code == 1 and "--finding says where to open" in told
    other = tmp_path / "x.json"
    scene().trace().save(other)
    code, told = view(str(other), "--finding", "1")
    assert code == 1 and "wrote as .pftrace" in told
