"""The steps from a segment's bytes to columns; ``ikp.core.decoding.decode`` takes them."""
