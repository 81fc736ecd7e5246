"""Calibration: the cost of a record on the device at hand, measured with small kernels."""
