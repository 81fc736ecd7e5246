"""Texts that take long to make, kept for all processes of a test run."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

FOLDER = "IKP_TESTS_KEPT"
"""The variable that names the folder: that run's own, and gone after it."""


def kept(what: str, of: bytes, make: Callable[[], str]) -> str:
    """Return the text that some bytes give, made by the first process that asks for it.

    NVIDIA's disassembler takes 0.8 s to start, and neighbours may run in different processes.
    """
    if FOLDER not in os.environ:
        return make()
    path = Path(os.environ[FOLDER]) / sha256(what.encode() + b"\0" + of).hexdigest()
    if path.exists():
        return path.read_text("utf-8")
    text = make()
    with NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).replace(path)  # whole, or not there
    return text
