"""Where the examples lie, and what to collect: they need Triton and PyTorch."""

from importlib.util import find_spec

_FOUND = find_spec("triton") is not None and find_spec("torch") is not None
collect_ignore_glob = [] if _FOUND else ["test_*.py"]
