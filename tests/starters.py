"""A process that starts tools, beside one that does nothing else: as under ``ikp run``."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.repo.tree import ROOT

_CODE = "from ikp import tool_starter; print(tool_starter.begin(), flush=True); input()"


@contextmanager
def starter() -> Iterator[str]:
    """Yield the name of its socket."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        name = process.stdout.readline().strip()
        assert name, "it can't be started"
        yield name
    finally:
        process.kill()
        process.communicate()
