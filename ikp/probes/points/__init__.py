"""Where time goes in a kernel: the stretches that can be recorded, and their names."""
