"""Traces of other profilers beside those of ikp: read, placed on one axis, joined in one file."""
