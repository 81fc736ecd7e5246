"""Kernels for AMD GPUs: loaded when the first is compiled, and never for NVIDIA."""
