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


@pytest.mark.parametrize("wide", [20, 60, 80, 100])
def test_what_is_not_known_takes_one_line_and_all_of_it_is_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    monkeypatch.setattr("ikp.cli._explain.columns", lambda: wide)
    known = json.loads(run("explain", str(path), "--format", "json").stdout)["unknown"]
    assert len(known) > 2
    short, whole = (run("explain", str(path), *more).stdout for more in ([], ["--unknown"]))
    found = [line for line in short.splitlines() if "Not known" in line]
    if wide > 40:
        assert short.endswith(f"{found[0]}\n") and len(found[0]) <= wide and len(found) == 1
    words = " ".join(whole.split())
    for one in known:
        assert f"{one['what']}: {one['rationale']}" in words


def test_a_finding_about_blocks_names_the_line_where_their_time_goes(tmp_path: Path) -> None:
    scene = Scene()
    for block in range(17):
        begin = block // 8 * 10_000
        ranges = [
            ("kernel", begin, begin + 9_900),
            ("loop @k.py:12", begin + 100, begin + 8_000),
            ("iteration @k.py:12", begin + 200, begin + 7_900),
            ("store @k.py:20", begin + 8_100, begin + 8_200),
        ]
        scene.add(Warp(block, 0, block % 8, begin, begin + 10_000, ranges))
    scene.trace().save(tmp_path / "x.pftrace")
    result = run("explain", str(tmp_path / "x.pftrace"), "--format", "json")
    first = json.loads(result.stdout)["findings"][0]
    assert first["id"] == "tail" and first["where"]["lines"] == ["k.py:12"]
