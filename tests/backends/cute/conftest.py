"""These tests import CuTe when they are collected: without it, there are none."""

import atexit
import os
import shutil
import tempfile
from importlib.util import find_spec

_FOUND = find_spec("cutlass") is not None and find_spec("triton") is not None
collect_ignore_glob = [] if _FOUND else ["test_*.py"]

if _FOUND:
    # CuTe writes what it compiles to the folder that this names when it is imported.
    _folder = tempfile.mkdtemp(prefix="ikp-cute-")
    os.environ["CUTE_DSL_DUMP_DIR"] = _folder
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
