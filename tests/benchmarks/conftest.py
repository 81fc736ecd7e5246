"""Where CuTe may write, and what to collect: the kernels need Triton and PyTorch, some CuTe."""

from importlib.util import find_spec

from tests.backends.cute.dump import dump_to_temporary_folder

_FOUND = find_spec("triton") is not None and find_spec("torch") is not None
_CUTE = _FOUND and find_spec("cutlass") is not None
collect_ignore_glob = [] if _FOUND else ["test_*.py"]
collect_ignore = [] if _CUTE else ["test_cute_patch.py"]

if _CUTE:
    dump_to_temporary_folder()
