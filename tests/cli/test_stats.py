import csv
import io
import json
from dataclasses import asdict

import pytest
from click.testing import CliRunner

from ikp.cli.main import cli
from ikp.edit import concat, select
from tests.analysis.example import launch, trace

EVENTS = [(0, 0, 0, 100), (0, 1, 100, 400), (0, 2, 500, 500), (1, 0, 0, 300), (2, 0, 50, 250)]


@pytest.fixture(scope="module")
def made():
    return trace(
        [*EVENTS, (4, 1, 0, 700)],
        launches=(launch("gemm", attempted=7, kept=5), launch("norm", attempted=1, kept=1)),
        slots=[(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)],
    )


@pytest.fixture(scope="module")
def file(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("stats") / "x.pftrace"
    made.save(path)
    return path


def invoke(*words):
    return CliRunner().invoke(cli, ["stats", *map(str, words)])


def test_the_table_is_the_traces_own(made, file):
    result = invoke(file)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{made.stats()}\n"
    assert "2 of 7 records dropped" in result.stdout


def test_it_ends_with_the_next_command_on_stderr(file):
    assert invoke(file).stderr == f"next: ikp view {file}    (the timeline, in your browser)\n"


def test_json_and_csv_are_clean_on_stdout(made, file):
    wanted = json.loads(made.stats().to_json())
    wanted["tables"][0]["files"] = [str(file)]
    assert json.loads(invoke(file, "--format", "json").stdout) == wanted
    rows = list(csv.DictReader(io.StringIO(invoke(file, "--format", "csv").stdout)))
    assert [(r["launch"], r["region"], r["total_ns"]) for r in rows] == [
        ("gemm", "load", "600"),
        ("gemm", "dot", "300"),
        ("gemm", "tile done", ""),
        ("norm", "dot", "700"),
    ]


def rows_of(*words):
    """Return the only table."""
    (table,) = json.loads(invoke(*words, "--format", "json").stdout)["tables"]
    return table


def regions(*words):
    rows = csv.DictReader(io.StringIO(invoke(*words, "--format", "csv").stdout))
    return [(row["launch"], row["region"]) for row in rows]


def test_rows_are_chosen_and_sorted(file):
    assert regions(file, "--region", "d*") == [("gemm", "dot"), ("norm", "dot")]
    assert regions(file, "--launch", "n?rm") == [("norm", "dot")]
    assert regions(file, "--launch", "gemm", "--sort", "mean")[0] == ("gemm", "dot")
    assert regions(file, "--top", "2") == [("gemm", "load"), ("norm", "dot")]
    assert regions(file, "--kind", "instant") == [("gemm", "tile done")]
    assert regions(file, "--launch", "g*", "--launch", "norm") == regions(file)


def test_rows_that_are_chosen_keep_their_figures(made, file):
    (row,) = rows_of(file, "--region", "load")["rows"]
    assert row == asdict(made.stats()["load"])


def test_warps_that_are_chosen_are_what_is_counted(made, file):
    found = rows_of(file, "--launch", "gemm", "--block", "0", "--block", "1")
    wanted = select(made, launch="gemm", block=[0, 1]).stats()
    assert found["rows"] == json.loads(wanted.to_json())["tables"][0]["rows"]
    assert "select(block=(0, 1)) kept" in found["about"][-1]
    assert regions(file, "--sm", "2") == [("gemm", "load")]


@pytest.fixture
def files(made, tmp_path):
    made.save(tmp_path / "a.pftrace")
    made.save(tmp_path / "b.pftrace")
    return tmp_path / "a.pftrace", tmp_path / "b.pftrace"


def test_several_files_each_on_its_own(made, files):
    shown = invoke(*files).stdout
    assert shown == "\n".join(f"== {file}\n{made.stats()}\n" for file in files)
    loaded = json.loads(invoke(*files, "--format", "json").stdout)["tables"]
    assert [one["files"] for one in loaded] == [[str(file)] for file in files]
    assert loaded[1]["rows"] == json.loads(made.stats().to_json())["tables"][0]["rows"]
    rows = list(csv.DictReader(io.StringIO(invoke(*files, "--format", "csv").stdout)))
    assert [row["file"] for row in rows] == [str(file) for file in files for _ in made.stats()]
    wrong = invoke(*files, "--region", "x")
    assert f"{files[0]}: no region matches 'x'" in wrong.stderr


def test_several_files_counted_together(made, files):
    merged = rows_of(*files, "--merge")
    assert merged["files"] == list(map(str, files))
    rows = merged["rows"]
    assert [(row["region"], row["launches"], row["count"]) for row in rows] == [
        (row.region, 2 * row.launches, 2 * row.count) for row in made.stats()
    ]
    assert rows[0]["share"] == made.stats().rows[0].share


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--region", "nothing"], "no region matches 'nothing'; there are: 'dot', 'load'"),
        (["--launch", "nothing"], "no launch matches 'nothing'; there are: 'gemm', 'norm'"),
        (["--warp", "7"], "no warp has warp=(7,)"),
    ],
)
def test_a_choice_that_leaves_nothing_is_told(file, words, message):
    result = invoke(file, *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


def test_a_file_that_is_no_trace_is_told(tmp_path):
    path = tmp_path / "x.pftrace"
    path.write_bytes(b"something else entirely")
    result = invoke(path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("ikp: error: ")


def test_an_unknown_suffix_is_told(tmp_path):
    path = tmp_path / "x.txt"
    path.touch()
    result = invoke(path)
    assert result.exit_code == 1
    assert ".pftrace" in result.stderr


def test_each_block_apart(made, file):
    result = invoke(file, "--by", "block", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["group"] for row in rows] == [row.group for row in made.stats(by="block")]
    assert {row["group"] for row in rows} >= {"block 0", "block 1", "block 2"}


def test_a_rank_is_chosen_of_several(tmp_path):
    ranks = [trace([(0, 0, 0, 100 + n)], launches=(launch("gemm", rank=n),)) for n in range(2)]
    concat(ranks).save(tmp_path / "x.pftrace")
    found = rows_of(tmp_path / "x.pftrace", "--rank", "1")
    assert [row["total_ns"] for row in found["rows"]] == [101]
