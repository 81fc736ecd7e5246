"""One file with both: whole for ikp, and in a viewer with arrows from calls to launches."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import ikp
from ikp.cli.main import cli
from ikp.core.host_trace import MONOTONIC, HostSlice
from ikp.exporters.perfetto import PerfettoExporter
from ikp.host_traces.placing import place
from tests.analysis.example import START
from tests.host_traces.simulated import launches, records
from tests.trace_processor.query import columns
from tests.trace_processor.server import open_trace

RECORDED = Path(__file__).parent / "recorded"


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in words])


BEGINS = [0, 50_000, 120_000, 160_000]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both traces in one file, with slices that overlap and one without length."""
    path = tmp_path_factory.mktemp("joined") / "both.pftrace"
    host = records(BEGINS)
    at = host.slices[0].start_ns - 1000
    more = (
        HostSlice(1, "step", "user_annotation", at, at + 200_000),
        HostSlice(1, "crossing", "overhead", at + 500, at + 200_500),
        HostSlice(1, "point", "cpu_op", at, at),
        HostSlice(1, "again", "cpu_op", at, at + 900),
    )
    placed = place(launches(BEGINS), replace(host, slices=host.slices + more))
    PerfettoExporter().write_beside(placed.trace, path, [placed.host], [placed.record])
    return path


def test_ikp_reads_its_trace_back(joined: Path) -> None:
    made, wanted = ikp.load(joined), launches(BEGINS)
    assert made.launches == wanted.launches
    assert np.array_equal(made.slots.start_ns, wanted.slots.start_ns)
    assert "joined with host.json: placed by clocks" in str(made.stats())


@pytest.mark.tp
def test_a_viewer_shows_all_slices_and_arrows(joined: Path) -> None:
    host = records(BEGINS)
    with open_trace(joined) as processor:
        lost = columns(
            processor,
            "select name, value from stats where severity != 'info' and value > 0",
        )
        assert not len(lost["name"])
        found = columns(
            processor, "select name, ts, dur, category from slice where category not null"
        )
        arrows = columns(
            processor,
            "select f.name as f, t.name as t, t.ts as ts, t.category as kind from flow "
            "join slice f on f.id = slice_out join slice t on t.id = slice_in order by t.ts, f.ts",
        )
        nested = columns(
            processor,
            "select s.name as name, p.name as parent from slice s "
            "join slice p on p.id = s.parent_id where s.category not null order by s.ts",
        )
    base = host.base_ns or 0
    wanted = {
        (each.name, base + each.start_ns, each.end_ns - each.start_ns, each.category)
        for each in host.slices
    }
    got = set(
        zip(*(found[name].tolist() for name in ("name", "ts", "dur", "category")), strict=True)
    )
    assert wanted <= got
    assert {(name, length) for name, _, length, _ in got - wanted} == {
        *(("step", 200_000), ("crossing", 200_000), ("point", 0), ("again", 900))
    }
    pairs = list(zip(arrows["f"].tolist(), arrows["t"].tolist(), strict=True))
    kernels = ["gemm", "norm", "softmax", "gemm"]
    assert pairs == [
        pair
        for name in kernels
        for pair in (("cuLaunchKernel", name), (name, name), (name, "block (0,0,0)"))
    ]
    assert ("cuLaunchKernel", "step") in zip(
        nested["name"].tolist(), nested["parent"].tolist(), strict=True
    )


@pytest.mark.tp
@pytest.mark.parametrize("late", [-200, 0, 299, 301, 900], ids=str)
def test_call_record_and_launch_are_tied_in_either_order_of_record_and_launch(
    late: int, tmp_path: Path
) -> None:
    """Clocks agree within a bound: a launch may seem to begin before its record does."""
    path = tmp_path / "both.pftrace"
    placed = place(launches(BEGINS), records(BEGINS, late_ns=late))
    PerfettoExporter().write_beside(placed.trace, path, [placed.host], [placed.record])
    with open_trace(path) as processor:
        arrows = columns(
            processor,
            "select iif(f.category is null, 'launch', f.category) as f, "
            "iif(t.name like 'block%', 'block', iif(t.category is null, 'launch', t.category)) "
            "as t from flow join slice f on f.id = slice_out join slice t on t.id = slice_in",
        )
    pairs = sorted(zip(arrows["f"].tolist(), arrows["t"].tolist(), strict=True))
    first, second = ("kernel", "launch") if late < 300 else ("launch", "kernel")
    assert pairs == sorted(
        len(BEGINS) * [("cuda_driver", first), (first, second), ("launch", "block")]
    )


def test_what_the_host_did_is_read_back(joined: Path) -> None:
    (back,) = PerfettoExporter().read_beside(joined)
    host, base = records(BEGINS), back.base_ns or 0
    assert back.source == "host.json"
    named = {(each.name, each.category, each.correlation): each for each in back.slices}
    assert len(back.slices) == len(host.slices) + 4
    for each in host.slices:
        other = named[each.name, each.category, each.correlation]
        assert back.tracks[other.track] == host.tracks[each.track]
        assert base + other.start_ns == (host.base_ns or 0) + each.start_ns
        assert other.end_ns - other.start_ns == each.end_ns - each.start_ns
        assert other.args == each.args
    assert named["crossing", "overhead", None].track == named["step", "user_annotation", None].track


@pytest.mark.tp
def test_merged_processes_keep_what_their_hosts_did(joined: Path, tmp_path: Path) -> None:
    other, plain, out = (tmp_path / f"{name}.pftrace" for name in ("other", "plain", "all"))
    host = records(BEGINS[:3], late_ns=0)
    late = replace(host, slices=tuple(replace(one, args=dict(one.args)) for one in host.slices))
    placed = place(launches(BEGINS[:3]), late)
    PerfettoExporter().write_beside(placed.trace, other, [placed.host], [placed.record])
    launches([10]).save(plain)
    said = run("merge", plain, joined, other, out)
    assert said.exit_code == 0, said.output
    assert len(ikp.load(out).launches) == 1 + len(BEGINS) + 3
    with open_trace(out) as processor:
        arrows = columns(
            processor,
            "select count(*) as n, count(distinct l.id) as launches from flow "
            "join slice r on r.id = slice_out join slice l on l.id = slice_in "
            "where r.category = 'kernel' and l.category is null and r.name = l.name "
            "and r.ts < l.ts and r.ts + r.dur > l.ts + l.dur",
        )
        shown = columns(processor, "select count(*) as n from slice where category is not null")
    assert (arrows["n"].tolist(), arrows["launches"].tolist()) == ([7], [7])
    assert shown["n"].tolist() == [8 + 4 + 6]
    assert run("merge", out, plain, tmp_path / "x.csv").exit_code == 0  # that holds no host
    shutil.copy(out, tmp_path / "again.pftrace")
    said = run("merge", tmp_path / "again.pftrace", plain, tmp_path / "more.pftrace")
    assert len(PerfettoExporter().read_beside(tmp_path / "more.pftrace")) == 2


def test_only_one_format_holds_both(tmp_path: Path) -> None:
    files = RECORDED / "h100.pftrace", RECORDED / "h100.json"
    said = run("join", *files, "--out", tmp_path / "both.json")
    assert said.exit_code == 1 and "go into a .pftrace" in said.output


def test_a_second_file_needs_the_clocks(tmp_path: Path) -> None:
    files = RECORDED / "h100.pftrace", *[RECORDED / "h100.json"] * 2
    said = run("join", *files, "--by", "launches", "--out", tmp_path / "both.pftrace")
    assert said.exit_code == 1 and "no other file can be" in said.output
    assert not list(tmp_path.iterdir())


@pytest.mark.tp
def test_what_an_h100_recorded_is_joined(tmp_path: Path) -> None:
    out = tmp_path / "both.pftrace"
    said = run("join", RECORDED / "h100.pftrace", RECORDED / "h100.json", "--out", out)
    assert "40 of 40 launches are within 1 us of their kernel record" in said.output
    again = run("join", RECORDED / "h100.pftrace", RECORDED / "h100.json", "--out", out)
    assert again.exit_code and "--force" in again.output
    by = ("--by", "launches", "--force", "--out", out)
    said = run("join", RECORDED / "h100.pftrace", RECORDED / "h100.json", *by)
    assert "placed by matching launches" in said.output
    with open_trace(out) as processor:
        inside = columns(
            processor,
            "select count(*) as n from flow join slice r on r.id = slice_out "
            "join slice l on l.id = slice_in where r.category = 'kernel' "
            "and l.ts >= r.ts - 1000 and l.ts + l.dur <= r.ts + r.dur + 1000",
        )
    assert inside["n"].tolist() == [40]


@pytest.mark.parametrize("kept", [("cuda_driver",), ()])
def test_a_file_without_records_of_launches_must_be_of_their_time(
    kept: tuple[str, ...], tmp_path: Path
) -> None:
    """A record of a launch shows that two files fit; without any, their times alone can."""
    content = json.loads((RECORDED / "h100.json").read_text())
    content["traceEvents"] = [e for e in content["traceEvents"] if e.get("cat") in kept]
    path, out = tmp_path / "host.json", tmp_path / "out.pftrace"
    path.write_text(json.dumps(content))
    said = run("join", RECORDED / "h100.pftrace", path, "--out", out)
    assert (said.exit_code == 0) is out.exists() is bool(kept), said.output
    assert bool(kept) is ("launches without a kernel record there: 40" in said.output)
    content["baseTimeNanoseconds"] -= 3_600_000_000_000
    path.write_text(json.dumps(content))
    said = run("join", RECORDED / "h100.pftrace", path, "--out", out, "--force")
    assert said.exit_code == 1 and "of different runs or boots" in said.output


@pytest.mark.tp
def test_functions_that_viztracer_saw_are_around_the_launches(tmp_path: Path) -> None:
    """Its times are CLOCK_MONOTONIC's: the trace knows by how much Unix time differs."""
    late = 10_000
    base = START - 3_600_000_000_000
    trace = launches(BEGINS)
    known = {**trace.provenance, MONOTONIC: str(base)}
    trace = replace(trace, provenance=known)
    inner = {"ph": "X", "pid": 9, "tid": 9, "name": "step (train.py:7)", "cat": "fee"}
    event = {**inner, "ts": (START - base - late) / 1e3, "dur": 300.5}
    content = {"traceEvents": [event], "viztracer_metadata": {"version": "1.1.1"}}
    source, path, out = tmp_path / "k.pftrace", tmp_path / "v.json", tmp_path / "out.pftrace"
    trace.save(source)
    path.write_text(json.dumps(content))
    said = run("join", source, path, "--out", out)
    assert said.exit_code == 0, said.output
    assert f"{path}: placed by the host's clocks, to some us." in said.output
    (host,) = PerfettoExporter().read_beside(out)
    (one,) = host.slices
    assert (host.base_ns or 0) + one.start_ns == START - late
    assert one.end_ns - one.start_ns == 300_500
    event["ts"] += 1e9  # as of another boot
    path.write_text(json.dumps(content))
    said = run("join", source, path, "--out", out, "--force")
    assert said.exit_code == 1 and "different runs or boots" in said.output
    launches(BEGINS).save(source, force=True)
    said = run("join", source, path, "--out", out, "--force")
    assert said.exit_code == 1 and "does not say how the host's clocks differed" in said.output
