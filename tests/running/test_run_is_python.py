"""``ikp run`` is ``python`` plus a trace: small programs run under both, and nothing differs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ikp.running.program import interpreter_options
from tests.repo.tree import ROOT
from tests.running.programs import PROGRAMS, Program

pytestmark = pytest.mark.any_pins

COMMAND = str(ROOT / "tests" / "cli" / "command.py")


def outcome(folder: Path, program: Program, *before: str) -> tuple[str, str, int]:
    """Run a program in a fresh folder; return what it printed, and its exit code or signal."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in {"prog.py": program.text, **program.files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", **program.environment}
    if program.before:
        subprocess.run([sys.executable, "-c", program.before], cwd=folder, check=True)
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {program.redirect}', sys.executable, *before, *program.words],
        check=False,
        cwd=folder,
        env=environment,
        input=program.stdin.encode(),
        capture_output=True,
        timeout=100,
    )
    return plain(done.stdout), plain(done.stderr), done.returncode


def plain(output: bytes) -> str:
    """Return output without ikp's own lines and without addresses."""
    text = output.decode(errors="backslashreplace")
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("ikp: ")]
    return re.sub(r"0x[0-9a-f]+", "0x", "".join(lines))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_does_under_python(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    folder = tmp_path / "folder"
    assert outcome(folder, program, COMMAND, "run") == outcome(folder, program)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("-m ikp run x.py", ""),
        ("/bin/ikp run -u x.py", ""),
        ("-u -X dev -Wd -W error -OO -m ikp run -m x", "-u -X dev -Wd -W error -OO"),
        ("-uBm ikp run x.py", "-uB"),
        ("-Xdev -c code run x.py", "-Xdev"),
        ("--check-hash-based-pycs always -q ikp run x.py", "--check-hash-based-pycs always -q"),
    ],
)
def test_options_of_python_itself_are_kept(words: str, options: str) -> None:
    assert interpreter_options(words.split()) == options.split()


def test_the_program_has_the_options_of_the_python_that_runs_ikp(tmp_path: Path) -> None:
    show = Program(words=("-c", "import sys; print(sys.flags, sys.warnoptions, sys._xoptions)"))
    options = ("-O", "-W", "ignore::UserWarning", "-X", "utf8=0", "-P", "-bb")
    under_ikp = outcome(tmp_path / "folder", show, *options, COMMAND, "run")
    assert under_ikp == outcome(tmp_path / "folder", show, *options)
    command = [sys.executable, "-I", COMMAND, "run", "-c", "print(1)"]
    isolated = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (isolated.returncode, isolated.stdout) == (1, "")
    assert "-I, -E or -S, which keep ikp out" in isolated.stderr
