"""``ikp run``: starts a whole program as Python would, records its kernels, prints a report."""
