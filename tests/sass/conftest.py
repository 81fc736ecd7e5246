"""These tests assemble and disassemble with the tools in Triton's package."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]
