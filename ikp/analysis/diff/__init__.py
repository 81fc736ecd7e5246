"""Comparison of two traces, or sets of traces: differences with confidence bounds."""
