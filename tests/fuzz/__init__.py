"""Fuzzers of what comes in as bytes: recorded segments, and trace files.

The suite runs a small, always equal part of them. For more: ``python -m tests.fuzz --help``.
"""
