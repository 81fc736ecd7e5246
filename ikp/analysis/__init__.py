"""Analyses of a trace: statistics, comparison, verdict, HTML page, DataFrame."""
