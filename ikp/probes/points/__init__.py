"""Probe points: the regions of a kernel's machine code that can be recorded, and their names."""
