"""The exit codes of docs/messages.md: each command ends with these at bad input."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ikp.cli import _doctor, _plugins
from ikp.cli._plugins import Check
from ikp.cli.main import COMMANDS, cli
from tests.analysis.explain.launches import Scene, Warp
from tests.repo.tree import ROOT

ROW = re.compile(r"^\| (`.*?) \| ([\d, ]+) \|", re.MULTILINE)
LIMIT = "duration=+3%"
BAD: dict[str, dict[int, tuple[str, ...]]] = {
    "demo": {1: ("--recorded", "--program"), 2: ("--wrong",)},
    "run": {1: ("-m", "-c", "x"), 2: ("--detail", "wrong", "x.py")},
    "stats": {1: ("missing.pftrace",), 2: ()},
    "explain": {1: ("damaged.pftrace",), 2: ()},
    "diff": {
        1: ("x.pftrace", "missing.pftrace"),
        2: ("x.pftrace",),
        3: ("many.pftrace", "slow.pftrace", "--fail-over", LIMIT),
        4: ("x.pftrace", "x.pftrace", "--fail-over", LIMIT),
    },
    "report": {1: ("x.pftrace", "-o", "x.wrong"), 2: ()},
    "view": {1: ("missing.pftrace",), 2: ("x.pftrace", "--window", "5")},
    "join": {1: ("x.pftrace", "missing.json"), 2: ()},
    "inspect": {1: ("missing.cubin",), 2: ("--wrong",)},
    "convert": {1: ("x.pftrace", "x.wrong"), 2: ("x.pftrace",)},
    "merge": {1: ("missing.pftrace", "all.pftrace"), 2: ()},
    "attach": {1: ("999999999",), 2: ("-1",)},
    "doctor": {1: (), 2: ("--wrong",)},
    "verify": {1: ("x.pftrace",), 2: ()},
    "calibrate": {1: ("--device", "cuda:77"), 2: ("--clock", "wrong")},
    "plugins": {1: ("--check",), 2: ("--wrong",)},
    "schema": {2: ("wrong",)},
    "mcp": {1: (), 2: ("--wrong",)},
    "skill": {2: ("--wrong",)},
}
"""Command -> exit code -> arguments that end with it."""
CASES = [(name, code, words) for name, each in BAD.items() for code, words in each.items()]


def scene(launches: int, ns: int = 10_000) -> Scene:
    made = Scene()
    for launch in range(launches):
        end = ns + launch % 3
        made.add(Warp(0, 0, 0, 0, end, [("dot", 0, end - 10)], launch=launch))
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scene(1).trace().save("x.pftrace")
    scene(20).trace().save("many.pftrace")
    scene(20, 20_000).trace().save("slow.pftrace")
    Path("damaged.pftrace").write_bytes(b"no trace")


def stated() -> dict[str, set[int]]:
    """Return the codes that the page names for each command."""
    page = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    rows = ROW.findall(page.partition("## Warnings")[0])
    return {
        name: set(map(int, codes.split(",")))
        for names, codes in rows
        for name in re.findall(r"`(\w+)`", names)
    }


def test_the_page_has_each_command_and_its_codes() -> None:
    assert stated() == {name: set(BAD[name]) for name in COMMANDS}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("name", "code", "words"), CASES)
def test_bad_input_ends_with_the_code(
    name: str, code: int, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Check(False, error="SystemError: boom")
    monkeypatch.setattr(_doctor, "check", lambda _: broken)
    monkeypatch.setattr(_plugins, "check", lambda _: broken)
    monkeypatch.setitem(sys.modules, "ikp.agents.server", None)
    done = CliRunner().invoke(cli, [name, *words])
    assert done.exit_code == code, done.output
    assert code > 2 or done.stderr.strip()


@pytest.mark.parametrize("code", [0, 7])
def test_a_program_under_run_ends_with_its_own_code(code: int) -> None:
    program = ["-c", f"raise SystemExit({code})"]
    command = [sys.executable, ROOT / "tests" / "cli" / "command.py", "run", *program]
    assert subprocess.run(command, check=False, capture_output=True).returncode == code
