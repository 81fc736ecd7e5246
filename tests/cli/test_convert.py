from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

import ikp
from ikp.cli import _convert
from ikp.cli._convert import cut_out
from ikp.cli.main import cli
from tests.analysis.example import trace
from tests.edit.test_select import example

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Return a function that runs ``ikp convert`` beside a trace named ``x.pftrace``."""
    monkeypatch.chdir(tmp_path)
    example().save("x.pftrace")
    return lambda *words: CliRunner().invoke(cli, ["convert", *map(str, words)])


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("y.json", "next: ikp view y.json"),
        ("y.json.gz", "next: ikp view y.json.gz"),
        ("y.pftrace", "next: ikp view y.pftrace"),
        ("y.hatchet", "next: proton-viewer -m normalized_cycles y.hatchet"),
        ("y.csv", "next: ikp stats x.pftrace"),
        ("y.parquet", "next: ikp stats x.pftrace"),
    ],
)
def test_every_format_is_written_and_the_next_command_named(
    invoke: Invoke, target: str, command: str, tmp_path: Path
) -> None:
    result = invoke("x.pftrace", target)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert f"{target}: 5 events of 4 warps.\n{command}" in result.stderr
    ikp.load("x.pftrace").save(tmp_path / f"api.{target}")
    if target != "y.parquet":  # whose pages hold no order of bytes that is promised
        assert (tmp_path / target).read_bytes() == (tmp_path / f"api.{target}").read_bytes()


@pytest.mark.parametrize(
    ("clocks", "metric"),
    [
        (("cycles", "globaltimer"), "normalized_cycles"),
        (("globaltimer", "cycles"), "normalized_cycles"),
        (("globaltimer", "globaltimer"), "time/us"),
    ],
)
def test_the_viewer_is_to_show_cycles_where_any_launch_counts_them(
    invoke: Invoke, clocks: tuple[str, str], metric: str
) -> None:
    trace = example()
    launches = (
        replace(one, clock=replace(one.clock, kind=kind))
        for one, kind in zip(trace.launches, clocks, strict=True)
    )
    replace(trace, launches=tuple(launches)).save("mixed.pftrace")
    result = invoke("mixed.pftrace", "y.hatchet")
    assert f"next: proton-viewer -m {metric} y.hatchet" in result.stderr


def test_options_choose_a_part(invoke: Invoke) -> None:
    result = invoke("x.pftrace", "y.parquet", "--region", "load*", "--sm", 0, "--sm", 1)
    assert result.exit_code == 0, result.output
    assert parquet.read_table("y.parquet")["region"].to_pylist() == ["load", "load_a", "load"]
    options = ("--launch", "gemm", "--block", 1, "--warp", 1, "--role", "p*", "--kind", "range")
    assert invoke("x.pftrace", "y.pftrace", *options).exit_code == 0
    trace = ikp.load("y.pftrace")
    assert [one.region for one in trace.ranges()] == ["load_a", "dot"]
    assert "launch=('gemm',)" in trace.provenance["edited"]


@pytest.mark.parametrize("window", ["0:5us", "700us:701us", "1.4ms:", ":1us"])
def test_a_window_is_what_it_is_of_the_whole_file(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, window: str
) -> None:
    each, slots = 15_000, range(10)  # several chunks
    events = [(at // each, at % 3, at * 10, at * 10 + 15) for at in range(each * len(slots))]
    trace(events, slots=[(0, at) for at in slots], residence=2_000_000).save("long.pftrace")
    read: list[int] = []

    def seen(part: ikp.Trace, *args: Any, **more: Any) -> ikp.Trace:
        read.append(len(part.events))
        return cut_out(part, *args, **more)

    monkeypatch.setattr(_convert, "cut_out", seen)
    assert invoke("long.pftrace", "part.pftrace", "--window", window).exit_code == 0
    monkeypatch.setattr(_convert, "_of_window", lambda *_: None)
    assert invoke("long.pftrace", "whole.pftrace", "--window", window).exit_code == 0
    assert Path("part.pftrace").read_bytes() == Path("whole.pftrace").read_bytes()
    assert read[0] < read[1] == len(events)


def test_an_existing_file_is_kept_unless_forced(invoke: Invoke) -> None:
    Path("y.json").write_text("mine")
    result = invoke("x.pftrace", "y.json")
    assert result.exit_code == 1
    assert "--force" in result.stderr
    assert Path("y.json").read_text() == "mine"
    assert invoke("x.pftrace", "y.json", "--force").exit_code == 0
    assert json.loads(Path("y.json").read_text())["displayTimeUnit"] == "ns"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.pftrace", "y.xls"], "no exporter knows the suffix of 'y.xls': use one of"),
        (["z.pftrace", "y.json"], "no such file: z.pftrace"),
        (["x.pftrace", "y.json", "--region", "q"], "no region matches 'q'; there are: "),
        (["x.pftrace", "no/y.json"], "there is no folder no"),
    ],
)
def test_what_cannot_be_converted_is_told(invoke: Invoke, words: list[str], message: str) -> None:
    result = invoke(*words)
    assert result.exit_code == 1
    assert f"ikp: error: {message}" in result.stderr or message in result.stderr


def test_other_formats_are_not_read_back(invoke: Invoke) -> None:
    assert invoke("x.pftrace", "y.json").exit_code == 0
    result = invoke("y.json", "z.csv")
    assert result.exit_code == 1
    assert "y.json can't be read back" in result.stderr
    assert ".pftrace" in result.stderr


def test_a_choice_of_nothing_replaces_no_file(invoke: Invoke, tmp_path: Path) -> None:
    good = tmp_path / "y.pftrace"
    good.write_bytes(b"precious")
    nothing = ("--kind", "instant", "--region", "load")
    result = invoke("x.pftrace", "y.pftrace", "--force", *nothing)
    assert result.exit_code == 1 and good.read_bytes() == b"precious"
    assert "none of 5 events is chosen" in result.stderr
    assert "y.pftrace stays as it was" in result.stderr
    result = invoke("x.pftrace", "z.pftrace", *nothing)
    assert result.exit_code == 1 and not (tmp_path / "z.pftrace").exists()


def test_a_trace_of_nothing_replaces_no_file(invoke: Invoke, tmp_path: Path) -> None:
    ikp.profile().trace.save(tmp_path / "empty.pftrace")
    good = tmp_path / "y.pftrace"
    good.write_bytes(b"precious")
    result = invoke("empty.pftrace", "y.pftrace", "--force")
    assert result.exit_code == 1 and good.read_bytes() == b"precious"
    assert invoke("empty.pftrace", "z.pftrace").exit_code == 0
