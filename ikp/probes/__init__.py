"""Probes: records, put into a kernel's finished machine code."""
