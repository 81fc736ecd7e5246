"""The start of a Python program by ``exec``, with ikp's ``sitecustomize`` in ``PYTHONPATH``."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

from ikp import tool_starter
from ikp.errors import UsageError
from ikp.running.startup import sitecustomize
from ikp.running.startup.ikp_children import Family

_FOLDER = str(Path(sitecustomize.__file__).parent)


def begin_family(follow: str) -> str | None:
    """Return the text of a new ``Family``, of which this process is the first.

    None where its notes have no place: then a line says so, and no child is recorded.

    Args:
        follow: ``python`` or ``all``.
    """
    try:
        folder = tempfile.mkdtemp(prefix="ikp-run-")
    except OSError as error:
        sitecustomize.say(f"child processes are not recorded: {error}")
        return None
    return str(Family(os.getpid(), folder, every=follow == "all"))


def become(words: list[str], wish: str | None, family: str | None = None) -> NoReturn:
    """Become ``python *words``: the same process, with the options of Python that this one has.

    Args:
        words: the arguments of ``python``, as in ``["-m", "pytest", "-q"]``.
        wish: the options for ``ikp.running.recording``; None runs the program without ikp.
        family: the processes of the run; None where children are not recorded.

    Raises:
        UsageError: Python runs without ``site`` or without its environment variables.
    """
    environment = {**os.environ, **_locale()}
    if wish is not None:
        environment = _with_ikp(environment, wish) | {sitecustomize.TOOLS: tool_starter.begin()}
        if family is not None:
            environment[sitecustomize.FAMILY] = family
    command = [sys.executable, *interpreter_options(sys.orig_argv[1:]), *words]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(sys.executable, command, environment)  # noqa: S606 - the user's own program


def _locale() -> dict[str, str]:
    """Return ``LC_CTYPE`` as this process was started with it, if Python may have changed it.

    In the C locale Python sets ``LC_CTYPE`` for itself and its children (PEP 538); the program's
    Python would then not see the locale that it was started in.
    """
    try:
        started = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    set_at_start = [each for each in started if each.startswith(b"LC_CTYPE=")]
    value = set_at_start[0].partition(b"=")[2] if set_at_start else b""  # empty is as good as unset
    return {"LC_CTYPE": os.fsdecode(value)} if "LC_CTYPE" in os.environ else {}


def _with_ikp(environment: Mapping[str, str], wish: str) -> dict[str, str]:
    """Return an environment in which Python imports ikp's ``sitecustomize``."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise UsageError(
            "Python was started with -I, -E or -S, which keep ikp out of the program. Leave it "
            "out, or run the program without ikp."
        )
    old = environment.get("PYTHONPATH")
    path = _FOLDER + os.pathsep + old if old else _FOLDER
    before = {} if old is None else {sitecustomize.OLD_PATH: old}
    return {**environment, **before, "PYTHONPATH": path, sitecustomize.WISH: wish}


def interpreter_options(words: list[str]) -> list[str]:
    """Return the options for Python itself that a Python command line begins with.

    ``["-u", "-X", "dev", "-m", "ikp", "run", "x.py"]`` has ``["-u", "-X", "dev"]``.
    """
    return python_arguments(words).options


class PythonArguments(NamedTuple):
    """The arguments of ``python``, by what they are."""

    options: list[str]  # for Python itself
    form: str  # "-m", "-c", or "" for a path
    rest: list[str]  # the module, text or path, and the program's own


def python_arguments(words: list[str]) -> PythonArguments:
    """Return what each argument of ``python`` is."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        letters = "" if words[at].startswith("--") else words[at][1:]
        first = next((n for n, letter in enumerate(letters) if letter in "cmWX"), len(letters))
        if letters[first : first + 1] in ("c", "m"):
            joined = [f"-{letters[:first]}"] if first else []
            behind = filter(None, [letters[first + 1 :]])
            rest = [*behind, *words[at + 1 :]]
            return PythonArguments([*words[:at], *joined], f"-{letters[first]}", rest)
        # The value of -W or -X is the next word.
        at += 1 + (first == len(letters) - 1 or words[at] == "--check-hash-based-pycs")
    return PythonArguments(words[:at], "", words[at:])
