"""Code put between that of a kernel: all that names a place in it follows."""
