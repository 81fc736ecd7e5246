"""A cubin: the file, its instructions as bits, and what can be added beside the code."""
