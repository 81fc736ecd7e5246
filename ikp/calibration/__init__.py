"""What recording costs on the device at hand, measured with small kernels."""
