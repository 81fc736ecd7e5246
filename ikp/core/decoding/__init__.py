"""The decoder: from a segment's bytes to columns. ``ikp.core.decoding.decode`` is its entry."""
