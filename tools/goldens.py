"""Writes the goldens anew: what each analysis says of each kernel of the corpus.

    python -m tools.goldens                        # writes them; then read `git diff`
    python -m tools.goldens --since HEAD           # prints what is said otherwise than by a commit
    python -m tools.goldens --add FILE.cubin NAME  # puts kernels of a file into the corpus

Digests alone are kept of most views. So ``--since`` runs the code of that commit, and compares.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ikp.sass.cubins.cubin import Cubin
from ikp.sass.disassembly import tools
from tests.goldens import corpus, goldens

ROOT = Path(__file__).resolve().parents[1]
_MOST = 40
"""Lines of a difference that are printed of one view."""


def since(revision: str) -> None:
    """Print what views say otherwise than the code of a revision does."""
    with tempfile.TemporaryDirectory() as folder:
        there, before, now = (Path(folder) / each for each in ("code", "before", "now"))
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "-q", "--detach", str(there), revision], check=True)
        try:
            command = [sys.executable, "-m", "tools.goldens", "--into", str(before)]
            environment = {**os.environ, "PYTHONPATH": str(there)}
            subprocess.run(command, cwd=there, env=environment, check=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(there)], check=True)
        goldens.write_into(now)
        sys.stdout.writelines(_differences(before, now))


def _differences(before: Path, now: Path) -> Iterator[str]:
    """Yield the lines in which the views of two folders differ."""
    for name in sorted({each.name for folder in (before, now) for each in folder.iterdir()}):
        old, new = (_lines(folder / name) for folder in (before, now))
        found = [*difflib.unified_diff(old, new, name, name, n=1, lineterm="")]
        more = [f"... and {len(found) - _MOST} lines more"] if len(found) > _MOST else []
        yield from (f"{line[:200]}\n" for line in (*found[:_MOST], *more))


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def add(path: Path, kernel: str) -> None:
    """Put a kernel of a file into the corpus, with its PTX where that lies beside the file."""
    cubin, ptx = path.read_bytes(), path.with_suffix(".ptx")
    file = Cubin.read(cubin)
    symbol = file.kernel(kernel).symbol
    text = tools.disassemble_function(cubin, kernel, {kernel: symbol})
    written = ptx.read_text("utf-8") if ptx.exists() else ""
    corpus.add(corpus.Listed(cubin, kernel, written, text))


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(prog="python -m tools.goldens", description=__doc__)
    parser.add_argument("--since", metavar="REVISION")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write what all views say")
    parser.add_argument("--add", type=Path, metavar="FILE.cubin")
    parser.add_argument("names", nargs="*", help="of the kernels to add")
    asked = parser.parse_args()
    if asked.since:
        since(asked.since)
    elif asked.into:
        goldens.write_into(asked.into)
    elif asked.add:
        for name in asked.names:
            add(asked.add, name)
    else:
        goldens.write()


if __name__ == "__main__":
    main()
