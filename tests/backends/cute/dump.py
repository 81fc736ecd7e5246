"""Where CuTe writes what it compiles."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile


def dump_to_temporary_folder() -> None:
    """Keep compiled kernels out of the working folder; call before cutlass is imported."""
    if "CUTE_DSL_DUMP_DIR" not in os.environ:
        folder = os.environ["CUTE_DSL_DUMP_DIR"] = tempfile.mkdtemp(prefix="ikp-cute-")
        atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a child that a test forks ends, too
        shutil.rmtree(folder, ignore_errors=True)
