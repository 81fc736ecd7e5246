"""The steps from a segment's bytes to columns; ``ikp.core.decode`` takes them."""
