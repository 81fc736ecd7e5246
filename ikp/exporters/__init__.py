"""Exporters: a package or module per file format, found by entry point, and their shared code."""
