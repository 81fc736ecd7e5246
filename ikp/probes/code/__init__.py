"""Probe code: the instruction sequences that ikp inserts for records, headers and selection."""
