"""These tests import CuTe when they are collected: without it, there are none."""

from importlib.util import find_spec

from tests.backends.cute.dump import dump_to_temporary_folder

_FOUND = find_spec("cutlass") is not None and find_spec("triton") is not None
collect_ignore_glob = [] if _FOUND else ["test_*.py"]

if _FOUND:
    dump_to_temporary_folder()
