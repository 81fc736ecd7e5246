"""A trace packed by gzip, or from standard input, is read as the file itself, by each command."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ikp
from ikp.cli.main import COMMANDS as NAMES
from ikp.cli.main import cli
from tests.analysis.explain.launches import Scene, Warp

COMMANDS = [
    ("stats", "{}"),
    ("stats", "{}", "--format", "json"),
    ("stats", "--merge", "{}", "{plain}"),
    ("explain", "{}"),
    ("explain", "{}", "--format", "json"),
    ("diff", "{}", "{plain}"),
    ("diff", "{plain}", "{}"),
    ("view", "{}", "--print"),
    ("inspect", "{}"),
    ("verify", "{}"),
    ("report", "{}", "-o", "page.html"),
    ("report", "{plain}", "{}", "-o", "page.html"),
    ("convert", "{}", "out.json"),
    ("convert", "{}", "out.pftrace"),
    ("convert", "{}", "out.pftrace", "--window", "0:5us"),
    ("merge", "{plain}", "{}", "out.pftrace"),
]
WRITTEN = ("page.html", "out.json", "out.pftrace")


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    scene = Scene()
    for block in range(17):
        begin = block // 8 * 10_000
        scene.add(Warp(block, 0, block % 8, begin, begin + 10_000, [("dot", begin, begin + 9_000)]))
    scene.trace().save("plain.pftrace")
    (tmp_path / "packed.pftrace.gz").write_bytes(gzip.compress(Path("plain.pftrace").read_bytes()))
    return Path("plain.pftrace")


def run(words: tuple[str, ...], name: str, content: bytes | None = None) -> tuple[Result, str]:
    """Run a command; return its result, and what it printed and wrote, without files' names."""
    for each in WRITTEN:
        Path(each).unlink(missing_ok=True)
    line = [word.format(name, plain="plain.pftrace") for word in words]
    result = CliRunner().invoke(cli, line, input=content)
    written = [Path(each).read_bytes().decode("latin-1") for each in WRITTEN if Path(each).exists()]
    text = "\n".join([result.stdout, *written])
    return result, re.sub(r"[^\s\">]*(?:stdin|plain|packed)\.pftrace(?:\.gz)?", "FILE", text)


@pytest.mark.any_pins
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_packed_and_from_standard_input_it_says_the_same(
    plain: Path, words: tuple[str, ...]
) -> None:
    result, wanted = run(words, str(plain))
    packed = Path("packed.pftrace.gz")
    for name, content in ((str(packed), None), ("-", packed.read_bytes())):
        other, found = run(words, name, content)
        assert other.exit_code == result.exit_code, other.stderr
        assert found == wanted
        assert "stdin.pftrace" not in "".join(
            line for line in other.stderr.splitlines() if line.startswith("next:")
        )


@pytest.mark.any_pins
def test_standard_input_is_read_once(plain: Path) -> None:
    result, _ = run(("diff", "-", "-"), "", plain.read_bytes())
    assert result.exit_code == 1 and "can be read once" in result.stderr


@pytest.mark.any_pins
@pytest.mark.parametrize(
    ("content", "why"), [(b"", "is empty"), (b"no trace", "begins with no packet")]
)
def test_what_is_no_trace_is_told(plain: Path, content: bytes, why: str) -> None:
    result, _ = run(("stats", "-"), "", content)
    assert result.exit_code == 1 and why in result.stderr


@pytest.mark.any_pins
@pytest.mark.parametrize("damage", ["cut", "bits", "other"])
def test_a_damaged_gzip_file_is_told(plain: Path, damage: str) -> None:
    path = Path("packed.pftrace.gz")
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-20:]
    elif damage == "bits":
        content[len(content) // 2] ^= 0x10
    else:
        content = bytearray(gzip.compress(b"no trace"))
    path.write_bytes(content)
    result, _ = run(("stats", str(path)), "")
    assert result.exit_code == 1 and ("damaged" in result.stderr or damage == "other")
    assert "packed.pftrace.gz" in result.stderr and "opy it again" in result.stderr


@pytest.mark.any_pins
def test_what_would_fill_the_disk_is_not_unpacked(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ikp.exporters.perfetto._walk._LARGE", 1 << 20)
    path = Path("packed.pftrace.gz")
    path.write_bytes(gzip.compress(bytes(8 << 20)))
    result, _ = run(("stats", str(path)), "")
    assert result.exit_code == 1 and "unpacks to more than" in result.stderr


def test_it_is_written_packed_too(plain: Path) -> None:
    trace = ikp.load(plain)
    trace.save("again.pftrace.gz")
    assert gzip.decompress(Path("again.pftrace.gz").read_bytes())[:1] == plain.read_bytes()[:1]
    assert ikp.load("again.pftrace.gz").explain().to_json() == trace.explain().to_json()


def test_a_pipe_of_the_shell(plain: Path) -> None:
    with plain.open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "ikp.cli.main", "explain", "-"],
            stdin=file,
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.startswith("kernel: 30.00 us on a GPU") and "next:" not in done.stderr


def test_the_help_of_each_command_that_reads_a_trace_says_so() -> None:
    words = {words[0] for words in COMMANDS} | {"join"}
    help_of = {name: CliRunner().invoke(cli, [name, "--help"]).output for name in NAMES}
    assert {name for name, text in help_of.items() if "x.pftrace.gz" in text} == words
