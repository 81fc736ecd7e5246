"""Public packages' own tests under ``ikp run``, held against plain Python."""
