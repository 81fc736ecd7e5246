"""The verdict on a launch (``trace.explain()``): what takes its time, as ranked findings."""
