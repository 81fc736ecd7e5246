import csv
import io
import json

import pytest
from click.testing import CliRunner

from ikp.cli.main import cli
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
    assert json.loads(invoke(file, "--format", "json").stdout) == json.loads(made.stats().to_json())
    rows = list(csv.DictReader(io.StringIO(invoke(file, "--format", "csv").stdout)))
    assert [(r["launch"], r["region"], r["total_ns"]) for r in rows] == [
        ("gemm", "load", "600"),
        ("gemm", "dot", "300"),
        ("gemm", "tile done", ""),
        ("norm", "dot", "700"),
    ]


def regions(*words):
    rows = csv.DictReader(io.StringIO(invoke(*words, "--format", "csv").stdout))
    return [(row["launch"], row["region"]) for row in rows]


def test_rows_are_chosen_and_sorted(file):
    assert regions(file, "--region", "^d") == [("gemm", "dot"), ("norm", "dot")]
    assert regions(file, "--launch", "norm") == [("norm", "dot")]
    assert regions(file, "--launch", "gemm", "--sort", "mean")[0] == ("gemm", "dot")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--region", "nothing"], "no region name matches 'nothing'"),
        (["--region", "("], "not a regular expression"),
        (
            ["--launch", "nothing"],
            "no launch has the label 'nothing'; the trace has: 'gemm', 'norm'",
        ),
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
