"""What ``ikp run`` takes for a program: a script, and a command as other profilers take it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ikp.cli._target import Target, misplaced, resolved
from ikp.errors import UsageError

pytestmark = pytest.mark.any_pins


def put(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of commands, that of this Python among them, and an empty one to be in."""
    commands, here = tmp_path / "bin", tmp_path / "here"
    commands.mkdir()
    here.mkdir()
    monkeypatch.setenv("PATH", f"{commands}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.chdir(here)
    return commands


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("train.py --lr 1", "train.py --lr 1"),
        ("", "-"),
        ("-", "-"),
        ("-u -X dev train.py -u", "-u -X dev train.py -u"),
        ("-Xdev -W error -m pack.part -q", "-Xdev -W error -m pack.part -q"),
        ("-um pack", "-u -m pack"),
        ("-mpack x", "-m pack x"),
        ("-c text -m x", "-c text -m x"),
        ("--check-hash-based-pycs always train.py", "--check-hash-based-pycs always train.py"),
        ("-- train.py", "train.py"),
    ],
)
@pytest.mark.parametrize("name", [Path(sys.executable).name, sys.executable])
def test_this_python_is_what_follows_it(name: str, words: str, means: str) -> None:
    assert resolved("", name, tuple(words.split())).words == means.split()


def test_what_python_takes_stays() -> None:
    Path("python").write_text("")
    for form, name in (("-m", "pytest"), ("-c", "python"), ("", "-"), ("", "python"), ("", "x.py")):
        assert resolved(form, name, ("-q",)) == Target((), form, name, ("-q",))


def test_another_python_is_refused(path: Path) -> None:
    put(path / "python3.99", "#!/bin/sh\n")
    with pytest.raises(UsageError, match=r"python3\.99 is .*ikp is installed for .*ikp run a\.py"):
        resolved("", "python3.99", ("a.py",))


@pytest.mark.parametrize(
    "head",
    [
        f"#!{sys.executable}\n",
        f"#!/usr/bin/env {Path(sys.executable).name}\n",
        f"#!/bin/sh\n'''exec' {sys.executable} \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_a_program_of_this_environment_is_run_by_its_path(path: Path, head: str) -> None:
    script = put(path / "tool", f"{head}import sys\n")
    assert resolved("", "tool", ("x",)) == Target((), "", str(script), ("x",))


@pytest.mark.parametrize("head", ["#!/bin/sh\n", "\x7fELF", "", "#!/nowhere/python\n", "#!\n"])
def test_any_other_program_is_refused(path: Path, head: str) -> None:
    put(path / "tool", head)
    with pytest.raises(UsageError, match="which is no Python program of this environment"):
        resolved("", "tool", ())


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("torchrun", r"torchrun \.\.\. --no-python ikp run train\.py"),
        ("srun", r"srun \.\.\. ikp run train\.py"),
        ("accelerate", "accelerate launch .* --no_python ikp run"),
    ],
)
def test_launchers_go_in_front(path: Path, name: str, command: str) -> None:
    put(path / name, f"#!{sys.executable}\n")
    with pytest.raises(UsageError, match=command):
        resolved("", name, ("train.py",))


def test_what_is_nowhere_is_pythons_to_refuse() -> None:
    assert resolved("", "nothing.py", ()).missing
    Path("dangling").symlink_to("nowhere")
    assert not resolved("", "dangling", ()).missing


def test_an_option_of_ikps_behind_the_program_is_told_once() -> None:
    own = ["--detail", "--out"]
    Path("a.py").write_text("import sys\n")
    Path("b.py").write_text("add_argument('--detail')\n@click.option('out')\n")

    def told(*args: str, name: str = "a.py", form: str = "") -> str:
        return misplaced(Target((), form, name, args), own)

    server = Target((), "-m", "server", ("--host", "127.0.0.1"))
    assert not misplaced(server, ["--host"], ["--host"])
    assert misplaced(server, ["--host"]), "an option with a value may be meant for ikp"
    for args in (("--host",), ("--host", "--port=1")):
        assert misplaced(Target((), "-m", "server", args), ["--host"], ["--host"])
    text = told("--lr", "1", "--detail=ops", "--out", "x")
    assert text.startswith("--detail is behind the program") and "ikp run --detail" in text
    assert told("--detail", form="-m", name="pack").endswith("ikp run --detail ... -m pack")
    assert told("--lr", "--", "--detail") == told("--details") == ""
    assert told("--detail", "--out", name="b.py") == ""
    assert told("--detail", name="nothing.py") != ""
