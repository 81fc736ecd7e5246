"""The instructions that ikp inserts: each, in which runs, and as which chip has them."""
