"""What reaches a terminal: run in a real one, a pty, of several widths."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from ikp.terminal import columns, next_line, printable, shortened, width
from tests.analysis.example import launch, trace

REGION = "tl.load @chunk_gated_delta_rule.py:417 in the loop of :391"
EVENTS = [(0, 0, 0, 512), (0, 1, 600, 12_345), (1, 1, 0, 900), (1, 2, 50, 50), (2, 3, 0, 70)]
PRINTED = """
import sys, ikp
from ikp.cli.main import cli
trace = ikp.load(sys.argv[1])
trace.print_stats()
print(trace.stats(by="block"))
cli(["stats", sys.argv[1]], standalone_mode=False)
"""
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def on_a_terminal(wide: int, *words: object, **environment: str) -> str:
    """Return what a Python process writes to a terminal of so many columns, colours left out."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, wide, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm", **environment},
    ):
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return ESCAPE.sub("", shown.decode()).replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other side is closed
        return b""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = trace(
        EVENTS,
        regions=("load", REGION, "\x1b[2Jtile\a", "x" * 100_000),
        launches=(launch("the kernel", attempted=9, kept=5),),
    )
    path = tmp_path_factory.mktemp("terminal") / "x.pftrace"
    made.save(path)
    return path


@pytest.mark.parametrize("wide", [60, 80, 100, 200])
def test_tables_keep_their_names(file: Path, wide: int) -> None:
    shown = on_a_terminal(wide, "-c", PRINTED, file)
    assert "Traceback" not in shown
    lines = shown.splitlines()
    for name in (REGION, "\\x1b[2Jtile\\x07 (instant)", "... (100,000"):
        assert sum(name in line for line in lines) >= 3, name  # print_stats, print, ikp stats
    assert sum(line.split()[:1] == ["load"] for line in lines) == 3
    told = sum(line.startswith("the kernel: ") for line in lines)
    assert told == 15  # what was lost, above, below, losses, and what recording did
    whole = [line for line in lines if "xxx" not in line and str(file) not in line]
    assert max(map(width, whole)) <= wide
    titles = [line.split() for line in lines if line.startswith("  region")]
    assert all({"count", "share", "self", "p50"} <= set(line) for line in titles)
    assert all(("max" in line) == (wide == 200) for line in titles)
    assert "\x1b" not in shown and "\a" not in shown


def test_columns_of_the_environment_go_before_the_terminals(file: Path) -> None:
    shown = on_a_terminal(200, "-c", PRINTED, file, COLUMNS="60")
    assert all("max" not in line for line in shown.splitlines() if line.startswith("  region"))


def test_a_table_that_is_piped_holds_all_of_it(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ikp", "stats", file],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "60"},
    )
    assert "min" in done.stdout.split() and "p95" in done.stdout.split()
    assert "x" * 100_000 in done.stdout and "\x1b" not in done.stdout
    assert f"  {REGION}" in done.stdout


def test_data_on_a_terminal_does_not_act_on_it(file: Path) -> None:
    shown = on_a_terminal(80, "-m", "ikp", "stats", "--format", "csv", file)
    assert "\\x1b[2Jtile\\x07" in shown and "\a" not in shown
    missing = on_a_terminal(80, "-m", "ikp", "stats", "no\x1b[2J.pftrace")
    assert "ikp: error: no such file: no\\x1b[2J.pftrace" in missing


def test_control_characters_stand_as_escapes_and_letters_stay() -> None:
    assert printable("a\x1b[1m\n\x7f\x9b\u2028\u202e\ud800") == (
        r"a\x1b[1m\n\x7f\x9b\u2028\u202e\ud800"
    )
    assert printable("a\nb\t", keep="\n") == "a\nb\\t"
    for text in ("測量　値", "né", "👩\u200d💻", r"back\slash", ""):
        assert printable(text) == text
    assert shortened("y" * 201) == f"{'y' * 200}... (201 characters)"
    assert (width("測量"), width("e\u0301"), width("ab")) == (4, 1, 2)


def test_what_is_no_terminal_has_no_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with (tmp_path / "x").open("w") as file:
        assert columns(file) is None
    assert columns(file) is None  # closed


@pytest.mark.parametrize("name", ["-x.pftrace", "--help", "a b.pftrace", "x.pftrace"])
def test_the_next_command_names_a_file_as_a_file(name):
    line = next_line("ikp", "view", "--finding", 1, Path(name))
    *options, file = shlex.split(line.removeprefix("next: "))
    assert options == ["ikp", "view", "--finding", "1"]
    assert Path(file) == Path(name) and not file.startswith("-")
