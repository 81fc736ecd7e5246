"""Starts a Python program in the place of this process, with ikp led in through ``site``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from ikp.cli.startup import sitecustomize
from ikp.errors import UsageError

FOLDER = str(Path(sitecustomize.__file__).parent)


def become(words: list[str], options: str | None) -> NoReturn:
    """Become ``python *words``: the same process, with the options of Python that this one has.

    Args:
        words: what comes after ``python``, as in ``["-m", "pytest", "-q"]``.
        options: what ``ikp.cli.recording`` gets; None runs the program without ikp.

    Raises:
        UsageError: Python runs without what lets ikp in.
    """
    environment = dict(os.environ) if options is None else with_ikp(os.environ, options)
    command = [sys.executable, *interpreter_options(sys.orig_argv[1:]), *words]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(sys.executable, command, environment)  # noqa: S606 - the user's own program


def with_ikp(environment: Mapping[str, str], options: str) -> dict[str, str]:
    """Return an environment in which Python imports ikp's ``sitecustomize``."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise UsageError(
            "Python was started with -I, -E or -S, which keep ikp out of the program. Leave it "
            "out, or run the program without ikp."
        )
    old = environment.get("PYTHONPATH")
    path = FOLDER + os.pathsep + old if old else FOLDER
    before = {} if old is None else {sitecustomize.OLD_PATH: old}
    return {**environment, **before, "PYTHONPATH": path, sitecustomize.OPTIONS: options}


def interpreter_options(words: list[str]) -> list[str]:
    """Return the options for Python itself that a Python command line begins with.

    ``["-u", "-X", "dev", "-m", "ikp", "run", "x.py"]`` has ``["-u", "-X", "dev"]``.
    """
    return list(_options(iter(words)))


def _options(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            return
        if word == "--check-hash-based-pycs":
            yield from (word, next(words))
            continue
        letters = word[1:] if not word.startswith("--") else ""
        at = next((at for at, letter in enumerate(letters) if letter in "cmWX"), len(letters))
        if letters[at : at + 1] in ("c", "m"):  # what runs ikp: the rest is not Python's
            if at:
                yield f"-{letters[:at]}"
            return
        yield word
        if at == len(letters) - 1:  # the value of -W or -X is the next word
            yield next(words)
