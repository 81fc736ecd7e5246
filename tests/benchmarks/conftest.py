"""Where CuTe may write, and what to collect: the kernels need CuTe, Triton's tools and PyTorch."""

from importlib.util import find_spec

from tests.backends.cute.dump import dump_to_temporary_folder

_FOUND = all(find_spec(name) is not None for name in ("cutlass", "triton", "torch"))
collect_ignore_glob = [] if _FOUND else ["test_*.py"]

if _FOUND:
    dump_to_temporary_folder()
