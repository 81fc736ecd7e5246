"""Hatchet files, opened by Triton's own ``proton-viewer``: what it prints is what was recorded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from ikp.cli.main import cli
from ikp.core.abi import Kind
from ikp.core.trace import ClockFit, Trace
from ikp.errors import ExportError
from ikp.exporters.hatchet import MOST_LEVELS, HatchetExporter
from ikp.plugins import EXPORTERS, load
from tests.exporters.perfetto.examples import launch, nothing, warp, warps
from tests.strategies import traces
from tests.trace_processor.nesting import parents

VIEWER = "triton.profiler.viewer"
needs_viewer = pytest.mark.skipif(
    not (find_spec("triton") and find_spec("hatchet")), reason="proton-viewer isn't installed"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.hatchet"


def viewed(path: Path, metric: str) -> list[tuple[int, str, float]]:
    """Return the tree that the viewer prints: depth, name and value of each node.

    As its command does, but in this process: to start it takes longer than to print a tree.
    """
    printed = StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(action="ignore"),
        redirect_stdout(printed),
    ):
        patch.setattr(sys, "argv", ["proton-viewer", "-m", metric, str(path)])
        import_module(VIEWER).main()
    return tree(printed.getvalue())


def viewed_alone(path: Path, metric: str) -> list[tuple[int, str, float]]:
    """Return the same, as the command prints it in a process with a stack of its own."""
    command = [sys.executable, "-W", "ignore", "-m", VIEWER, "-m", metric, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tree(done.stdout)


def tree(printed: str) -> list[tuple[int, str, float]]:
    lines = re.findall(r"^([│├└─ ]*)(-?[\d.]+) (.+)$", printed, re.MULTILINE)
    return [(len(lead) // 3, name, float(value)) for lead, value, name in lines]


def read(path: Path) -> dict[str, Any]:
    root, devices = json.loads(path.read_text())
    assert devices == {}
    return dict(root)


def totals(node: dict[str, Any], metric: str) -> dict[tuple[str, ...], float]:
    """Return what the viewer makes of a metric: each node's, with all below it."""
    found: dict[tuple[str, ...], float] = {}
    own = node["metrics"].get(metric, 0)
    for child in node["children"]:
        below = totals(child, metric)
        name = (child["frame"]["name"],)
        own += below[()]
        found |= {name + key: value for key, value in below.items()}
    return {**found, (): own}


def by_region(trace: Trace) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Return the cycles and the time of all ranges, by launch label and region."""
    cycles: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    for one in trace.ranges():
        key = (one.label or "(no name)", one.region or "(no name)")
        cycles[key] += one.cycles or 0
        times[key] += one.duration_ns
    return cycles, times


def gemm() -> Trace:
    """Return two warps, in each a tile that holds loads and a dot; and an overlap."""
    tile = [(1, 3), (3, 9), (10, 12), (0, 20)]
    trace = warps([tile, [*tile, 20, (18, 30)]], names=["load", "dot", "load", "tile"])
    region = np.array([0, 1, 0, 3, 0, 1, 0, 3, 1, 0], np.int32)
    return replace(trace, events=replace(trace.events, region=region))


def test_it_is_found_by_its_entry_point() -> None:
    assert isinstance(load(EXPORTERS, "hatchet"), HatchetExporter)


@needs_viewer
def test_the_viewer_prints_cycles_time_and_averages(path: Path) -> None:
    gemm().save(path)
    assert viewed(path, "cycles") == [
        (0, "ROOT", 104.0),
        (1, "gemm", 104.0),
        (2, "load", 24.0),
        (2, "tile", 80.0),
        (3, "dot", 24.0),
        (3, "load", 16.0),
    ]
    assert viewed(path, "normalized_cycles") == [
        (0, "ROOT", 52.0),
        (1, "gemm", 52.0),
        (2, "load", 12.0),
        (2, "tile", 40.0),
        (3, "dot", 12.0),
        (3, "load", 8.0),
    ]
    assert viewed(path, "time/ns")[3] == (2, "tile", 40.0)


@needs_viewer
def test_launches_of_one_label_are_one_node_and_averages_are_of_all_its_warps(path: Path) -> None:
    one = gemm()
    trace = replace(one, launches=(one.launches[0], one.launches[0]))
    trace = replace(trace, slots=replace(trace.slots, launch=np.array([0, 1], np.int32)))
    trace.save(path)
    assert viewed(path, "normalized_cycles")[1] == (1, "gemm", 52.0)


@needs_viewer
@pytest.mark.parametrize("kind", ["cycles", "host"])
def test_the_command_that_convert_prints_works(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = gemm()
    clock = ClockFit(kind, 0.5 if kind == "cycles" else 1.0, "exact")
    replace(made, launches=(replace(made.launches[0], clock=clock),)).save("a.pftrace")
    told = CliRunner().invoke(cli, ["convert", "a.pftrace", "a.hatchet"]).stderr
    (metric,) = re.findall(r"^next: proton-viewer -m (\S+) a\.hatchet ", told, re.MULTILINE)
    assert metric == ("normalized_cycles" if kind == "cycles" else "time/us")
    assert [name for _, name, _ in viewed(tmp_path / "a.hatchet", metric)][:2] == ["ROOT", "gemm"]


@needs_viewer
def test_nesting_deeper_than_the_viewer_can_go(path: Path) -> None:
    depth = MOST_LEVELS + 50
    warp(*((depth - i, depth + i) for i in range(1, depth))).save(path)
    assert viewed_alone(path, "cycles")[2] == (2, "load", 4.0 * (depth - 1))
    found = totals(read(path), "cycles")
    assert max(map(len, found)) == 1 + MOST_LEVELS
    assert sum(n for key, n in found.items() if len(key) > 1) == sum(4 * i for i in range(1, depth))


@needs_viewer
@pytest.mark.parametrize(
    "launches", [(), (launch(),), (launch(clock=ClockFit("host", 1, "exact")),)]
)
def test_an_empty_trace_opens(launches: tuple[Any, ...], path: Path) -> None:
    nothing(launches=launches).save(path)
    assert {value for _, _, value in viewed(path, "time/ns")} == {0.0}


def test_a_clock_that_counts_no_cycles_gives_none(path: Path) -> None:
    warp((0, 7), clock=ClockFit("globaltimer", 1.0, "exact")).save(path)
    node = read(path)
    assert totals(node, "time (ns)")["gemm", "load"] == 7
    assert "cycles" not in node["metrics"] | node["children"][0]["children"][0]["metrics"]


def test_zero_length_ranges_and_instants(path: Path) -> None:
    warp((5, 5), 6, (5, 5), names=["load", "tick"]).save(path)
    assert totals(read(path), "cycles") == {("gemm", "load"): 0, ("gemm",): 0, (): 0}


@pytest.mark.any_pins
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces())
def test_totals_are_those_of_the_ranges(trace: Trace, path: Path) -> None:
    HatchetExporter().write(trace, path, force=True)
    cycles, times = by_region(trace)
    for metric, wanted in (("cycles", cycles), ("time (ns)", times)):
        found: Counter[tuple[str, str]] = Counter()
        for key, value in totals(read(path), metric).items():
            if len(key) > 1:
                found[key[0], key[-1]] += value  # type: ignore[assignment]
        assert dict(found) == dict(wanted)
    names = {one.label or "(no name)" for one in trace.launches}
    assert {child["frame"]["name"] for child in read(path)["children"]} == names


@pytest.mark.any_pins
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces())
def test_what_one_lies_in_is_what_holds_it(trace: Trace, path: Path) -> None:
    """Where no ranges of a warp overlap, the way to a node is the ranges around each other."""
    HatchetExporter().write(trace, path, force=True)
    wanted: set[tuple[str, ...]] = set()
    for slot in range(len(trace.slots)):
        rows = np.flatnonzero((trace.events.slot == slot) & (trace.events.kind == Kind.RANGE))
        holders = nesting(trace, rows)
        if holders is None:
            return
        label = trace.launches[trace.slots.launch[slot]].label
        regions = [trace.regions[i].name for i in trace.events.region[rows]]
        ways: dict[int, tuple[str, ...]] = {-1: (label or "(no name)",)}
        for i in reversed(range(len(rows))):  # what holds a range is recorded after it
            ways[i] = (*ways[holders[i]], regions[i] or "(no name)")
        del ways[-1]
        wanted |= set(ways.values())
    assert {key for key in totals(read(path), "cycles") if len(key) > 1} == wanted


def nesting(trace: Trace, rows: NDArray[np.intp]) -> list[int] | None:
    """Return for each range of a warp the place of the one that holds it; None if some overlap."""
    start, end = (column[rows].tolist() for column in (trace.events.start_ns, trace.events.end_ns))
    return parents(start, end, [True] * len(rows))


@pytest.mark.parametrize(
    ("spans", "held"),
    [
        ([(1, 2), (0, 2)], True),
        ([(0, 2), (1, 2)], False),  # the first was over before the second: they overlap
        ([(0, 2), (0, 2)], True),
    ],
)
def test_of_ranges_that_end_at_one_time_the_later_record_holds_the_other(
    spans: list[tuple[int, int]], held: bool, path: Path
) -> None:
    warp(*spans).save(path)
    found = totals(read(path), "time (ns)")
    inner, outer = (end - start for start, end in spans)
    if held:
        assert found == {("gemm", "load", "load"): inner, **dict.fromkeys(_UPPER, outer)}
    else:
        assert found == dict.fromkeys(_UPPER, inner + outer)


_UPPER = [("gemm", "load"), ("gemm",), ()]


def test_a_trace_that_contradicts_itself_is_refused(path: Path) -> None:
    with pytest.raises(ExportError, match="contradicts itself"):
        warp((5, 1)).save(path)
    assert not path.exists()
