"""A whole program under ``ikp run``: started as Python would, its kernels recorded, a report."""
