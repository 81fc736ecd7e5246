"""Probes in machine code: probe points, probe code, and their placement in a compiled kernel."""
