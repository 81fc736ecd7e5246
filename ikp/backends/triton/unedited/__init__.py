"""Marks put into Triton and Gluon kernels that nobody edited."""
