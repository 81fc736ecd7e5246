"""Findings of ``ikp explain``, by cause: functions from a launch's prepared columns to findings."""
