"""The CUDA driver, asked with no package in between."""
