"""Runs a suite, plain or under ``ikp run``, each time with new caches and a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tools.suites.reading import ERR, OUT, REPORTS, Run, read
from tools.suites.reporting import FILE, LIMIT, SAMPLE
from tools.suites.suite import Suite

CACHES = (
    *("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "WARP_CACHE_PATH", "CUPY_CACHE_DIR"),
    *("XDG_CACHE_HOME",),
)
"""A kernel compiled in one run would not be compiled in the next."""
_HERE = Path(__file__).parent


def run(suite: Suite, python: str, sources: Path, minutes: float, *, recorded: bool) -> Run:
    """Run a suite once.

    Args:
        suite: what to run.
        python: the interpreter whose environment holds the package, pytest and ikp.
        sources: the folder of sources.
        minutes: after so long the run is killed.
        recorded: whether under ``ikp run``.
    """
    with tempfile.TemporaryDirectory(prefix="suite") as folder:
        scratch = Path(folder)
        place = sources / suite.folder if suite.folder else scratch
        ikp = ["-m", "ikp", "run", *suite.options, "--out", str(scratch / "suite.pftrace")]
        command = [python, *(ikp if recorded else []), "-m", "pytest", *_pytest(suite)]
        begun = time.monotonic()
        with (scratch / OUT).open("wb") as out, (scratch / ERR).open("wb") as err:
            process = subprocess.Popen(
                command,
                cwd=place,
                env=_environment(suite, scratch),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            code = _wait(process, minutes)
        seconds = time.monotonic() - begun
        return read(scratch, code, seconds)


def _pytest(suite: Suite) -> list[str]:
    ours = ("-p", "reporting", "-p", "no:cacheprovider", "-q", "--tb=short")
    return [*ours, "--continue-on-collection-errors", *suite.arguments]


def _environment(suite: Suite, scratch: Path) -> dict[str, str]:
    """Return the environment: the user's, with new caches and the plugin."""
    path = [str(_HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {name: value.format(scratch=scratch) for name, value in suite.environment.items()}
    return {
        **os.environ,
        **{name: str(scratch / name.lower()) for name in CACHES},
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        FILE: str(scratch / REPORTS),
        SAMPLE: str(suite.sample),
        LIMIT: str(suite.limit),
        **own,
    }


def _wait(process: subprocess.Popen[bytes], minutes: float) -> int | None:
    """Return the exit code; None where the process had to be killed, with its children."""
    try:
        return process.wait(60 * minutes)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
