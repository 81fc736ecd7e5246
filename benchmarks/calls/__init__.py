"""Calls of libraries' kernels, divided before any was run: to develop with, and to judge by."""
