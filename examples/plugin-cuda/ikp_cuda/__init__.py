"""CUDA C++ kernels under ``ikp``, and traces as TSV: an example of both kinds of plugin."""

from ikp_cuda.compiler import build
from ikp_cuda.launch import Kernel

__all__ = ["Kernel", "build"]
