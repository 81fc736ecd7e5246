"""The target of ``ikp run``, a script, module or text, resolved from its command line.

Other profilers take a command, ``nsys profile python train.py``; ``ikp run`` takes the arguments of
``python``. So a command that is this Python, or a Python program of this environment, is replaced
by the target that it runs.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ikp.errors import UsageError
from ikp.running.program import python_arguments

_PYTHON: Final = re.compile(r"python[\d.]*$")
_LAUNCHERS: Final = {"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun"}
"""Programs that run others in processes of their own: Python's are recorded with ``--follow``."""
_LAUNCHING: Final = {"torch.distributed.run", "torch.distributed.launch", "accelerate"}
"""Modules that do so."""


@dataclass(frozen=True, slots=True)
class Target:
    """The arguments of ``python``: its options, the form, the program and its arguments."""

    options: tuple[str, ...]  # of Python
    form: str  # "-m", "-c", or "" for a path
    name: str  # a module, a program's text, a path
    args: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """All arguments, in their order."""
        return [*self.options, *filter(None, [self.form]), self.name, *self.args]

    @property
    def launches(self) -> bool:
        """Whether it is a launcher, which runs the program in processes of its own."""
        name = self.name if self.form == "-m" else Path(self.name).name
        return self.form != "-c" and name in (_LAUNCHING if self.form else _LAUNCHERS)

    @property
    def missing(self) -> bool:
        """Whether it is a path at which nothing lies."""
        return not self.form and self.name != "-" and not os.path.lexists(self.name)


def resolved(form: str, name: str, args: tuple[str, ...], *, followed: bool = False) -> Target:
    """Return the target; a name that no file has is taken as a command.

    Args:
        form: ``-m``, ``-c``, or "" for a path.
        name: a module, a program's text, a path, a command.
        args: of the program.
        followed: whether its Python children are recorded: then it may be a launcher in Python.

    Raises:
        UsageError: it is no Python program of this environment.
    """
    target = Target((), form, name, args)
    if (found := _command(target)) is None:
        return target
    if Path(name).name in _LAUNCHERS and not (followed and _is_script_of_this_python(Path(found))):
        raise UsageError(_of_launcher(Path(name).name))
    if _PYTHON.match(Path(name).name):
        if not _is_this_python(Path(found)):
            raise UsageError(
                f"{name} is {found}, and ikp is installed for {sys.executable}: it runs programs "
                "with that. Install ikp for the other one, or leave the word out: "
                f"ikp run {' '.join(args[:1]) or 'SCRIPT'}"
            )
        return _after_python(list(args))
    if not _is_script_of_this_python(Path(found)):
        raise UsageError(
            f"{name} is {found}, which is no Python program of this environment. ikp run takes "
            "what python takes, a script or -m MODULE. Where it starts a Python program, put "
            "`ikp run` in front of that one."
        )
    return Target((), "", found, args)


def _command(target: Target) -> str | None:
    """Return the path of the program, where the target is a command; None for a file or module."""
    name = target.name
    python = os.sep in name and _PYTHON.match(Path(name).name)  # as by $(which python)
    return shutil.which(name) if target.missing or (python and not target.form) else None


def _of_launcher(name: str) -> str:
    no_python = {"torchrun": " --no-python", "deepspeed": " --no_python"}.get(name, "")
    command = f"{name} ...{no_python} ikp run train.py"
    if name == "accelerate":
        command = "accelerate launch ... --no_python ikp run train.py"
    return (
        f"{name} runs a program in processes of its own. ikp follows those of a launcher in this "
        f"Python, unless --follow is none. Put ikp behind the launcher's options: {command}. "
        "Each rank writes a trace of its own."
    )


def _is_this_python(program: Path) -> bool:
    """Return whether a command starts the Python that runs ikp, with the same packages."""
    this = Path(sys.executable)
    if not program.exists() or not program.samefile(this):
        return False
    return program.parent.resolve() == this.parent.resolve() or not (
        _is_of_venv(program) or _is_of_venv(this)
    )


def _is_of_venv(program: Path) -> bool:
    return (program.parent.parent / "pyvenv.cfg").exists()


def _is_script_of_this_python(script: Path) -> bool:
    """Return whether a file's first lines name this Python, as in console scripts by pip."""
    words = _interpreter(script)
    if words and Path(words[0]).name == "env":
        words = [each for each in words[1:] if not each.startswith("-")]
    if not words or not _PYTHON.match(Path(words[0]).name):
        return False
    program = shutil.which(words[0])
    return program is not None and _is_this_python(Path(program))


def _interpreter(script: Path) -> list[str]:
    """Return the command in a file's first lines that runs it; empty for none."""
    try:
        with script.open("rb") as file:
            line, _, rest = file.read(1024).partition(b"\n")
    except OSError:
        return []
    if not line.startswith(b"#!"):
        return []
    long = re.match(rb"'''exec' (\S+)", rest)  # where the path is too long for the kernel
    return os.fsdecode(long[1] if long else line[2:]).strip().strip('"').split()


def _after_python(words: list[str]) -> Target:
    """Return the target of a Python command line without its first word."""
    options, form, rest = python_arguments(words)
    if form and not rest:
        raise UsageError(f"python {form} wants a word behind it.")
    if not form:  # words end Python's options; none is a program from stdin
        rest = rest[rest[:1] == ["--"] :] or ["-"]
    return Target(tuple(options), form, rest[0], tuple(rest[1:]))


def misplaced(target: Target, own: Sequence[str], flags: Container[str] = ()) -> str:
    """Return the message on an option of ikp's behind the program; "" for none.

    A program may have an option of that name: it gets all that follows it, and there is no message
    on one that has the name in its text, or that gives a value to what is a flag of ikp's, as
    servers' ``--host 127.0.0.1`` does.

    Args:
        target: the program.
        own: ikp's options, as ``--detail``.
        flags: those of them that take no value.
    """
    text = _text_of(target)
    for at, word in enumerate(target.args):
        option, equals, _ = word.partition("=")
        value = equals or not "".join(target.args[at + 1 : at + 2] or ["-"]).startswith("-")
        if option in flags and value:
            continue
        if word == "--":
            return ""
        if option in own and option not in text and option.lstrip("-") not in text:
            place = f"{target.form} {target.name}".strip()
            return (
                f"{option} is behind the program and goes to it. For ikp's own, write it in "
                f"front: ikp run {option} ... {place}"
            )
    return ""


def _text_of(target: Target) -> str:
    """Return the text of a program's script; "" of another program, or where it can't be read."""
    if target.form or target.missing:
        return ""
    try:
        return Path(target.name).read_text(encoding="utf-8", errors="replace")
    except OSError:  # a folder, a pipe
        return ""
