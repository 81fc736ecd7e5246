"""Finished machine code: read, changed and written back; knows no language."""
