"""ikp's lines go to the stderr that the run began with, and into no file of the program's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ikp import progress
from ikp.running.startup.sitecustomize import Stderr
from tests.repo.tree import ROOT

pytestmark = pytest.mark.any_pins

COMMAND = str(ROOT / "tests" / "cli" / "command.py")
LINE = "ikp: no kernel that ikp records was launched"
OPENED = "open('own', 'w', buffering=1)"
EXECUTED = "os.execv(sys.executable, [sys.executable, '-c', 'pass'])"

PROGRAMS = {
    "closed, and the number given again": f"os.close(2); own = {OPENED}; assert own.fileno() == 2",
    "closed as a stream": f"sys.stderr.close(); os.close(2); own = {OPENED}",
    "replaced": f"own = {OPENED}; os.dup2(own.fileno(), 2)",
    "replaced by another object": f"own = sys.__stderr__ = sys.stderr = {OPENED}",
    "replaced before exec": f"own = {OPENED}; os.dup2(own.fileno(), 2); {EXECUTED}",
    "replaced in a fork": f"own = {OPENED}\nif not os.fork(): os.dup2(own.fileno(), 2)",
    "replaced by a pipe that nobody reads": f"own = {OPENED}; os.dup2(os.pipe()[1], 2)",
    "standard output's number, too": f"own = {OPENED}\nfor n in 1, 2: os.dup2(own.fileno(), n)",
}


def run(text: str, folder: Path, *redirect: str) -> str:
    """Run a program under ``ikp run``; return what came on the stderr that it was given."""
    (folder / "prog.py").write_text(f"import os, sys\n{text}\nown.write('mine')\n")
    words = [sys.executable, COMMAND, "run", "prog.py"]
    shell = ["sh", "-c", f'exec "$0" "$@" {" ".join(redirect)}', *words]
    done = subprocess.run(
        shell, check=False, cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("redirect", ["", "2>given"])
def test_a_file_of_the_programs_has_no_line_of_ikps(
    name: str, redirect: str, tmp_path: Path
) -> None:
    run(PROGRAMS[name], tmp_path, redirect)
    assert (tmp_path / "own").read_text() in {"mine", "", "minemine"}
    if redirect:  # the first stderr can be opened anew: a file, as a terminal
        assert (tmp_path / "given").read_text().count(LINE) == 1


def test_the_line_comes_where_the_program_left_stderr_alone(tmp_path: Path) -> None:
    """And where it put it back, as pytest does."""
    assert LINE in run(f"own = {OPENED}", tmp_path)
    back = f"own = {OPENED}; old = os.dup(2); os.dup2(own.fileno(), 2); os.dup2(old, 2)"
    assert LINE in run(back, tmp_path)


def test_another_file_in_the_first_ones_place_has_no_line(tmp_path: Path) -> None:
    moved = f"own = {OPENED}; os.dup2(own.fileno(), 2); os.rename('given', 'old')"
    moved += "; open('given', 'w')"
    run(moved, tmp_path, "2>given")
    assert (tmp_path / "given").read_text() == ""


def test_a_child_is_told_which_stderr_is_the_runs(tmp_path: Path) -> None:
    first = Stderr()
    assert (Stderr(str(first)).place, Stderr(str(first)).path) == (first.place, first.path)
    (tmp_path / "given").touch()
    given = os.open(tmp_path / "given", os.O_WRONLY)
    found = os.fstat(given)
    os.close(given)
    place = f"{found.st_dev}:{found.st_ino}:{found.st_rdev}"
    Stderr(f"{place} {tmp_path / 'given'}").put("a line \udcff")
    assert (tmp_path / "given").read_text() == "a line \\udcff\n"
    Stderr(f"{place} pipe:[1]").put("no line")
    Stderr(f" {tmp_path / 'given'}").put("no line")
    Stderr(f"{place} {tmp_path / 'gone'}").put("no line")
    assert (tmp_path / "given").read_text() == "a line \\udcff\n"
    assert not (tmp_path / "gone").exists()


def test_no_bar_on_a_stream_that_only_claims_to_be_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program's stream that also writes to its log passes ``isatty`` on."""

    class Both:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Both())
    with progress.progress(1, "work") as advance:
        assert "<lambda>" in repr(advance)
