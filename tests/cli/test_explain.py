"""``ikp explain``: a screen, JSON, and its schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ikp.cli.main import cli
from tests.analysis.explain.launches import Scene, Warp

pytestmark = pytest.mark.any_pins


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    scene = Scene()
    for block in range(17):
        begin = block // 8 * 10_000
        scene.add(Warp(block, 0, block % 8, begin, begin + 10_000, [("dot", begin, begin + 9_000)]))
    file = tmp_path / "x.pftrace"
    scene.trace().save(file)
    return file


def test_a_screen(path: Path) -> None:
    result = run("explain", str(path))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "kernel: 30.00 us on a GPU" and len(lines) < 40
    assert any("[tail, measured]" in line for line in lines)
    assert "ikp view" in result.stderr


def test_json(path: Path) -> None:
    result = run("explain", str(path), "--format", "json")
    said = json.loads(result.stdout)
    assert said["schema"] == "ikp/explain" and said["findings"][0]["id"] == "tail"
    assert said == json.loads(run("explain", str(path), "--format", "json", "--launch", "0").stdout)


def test_the_schema() -> None:
    result = run("explain", "--schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["properties"]["schema"] == {"const": "ikp/explain"}


def test_a_launch_that_is_not_there(path: Path) -> None:
    result = run("explain", str(path), "--launch", "other*")
    assert result.exit_code == 1 and "kernel" in result.stderr
