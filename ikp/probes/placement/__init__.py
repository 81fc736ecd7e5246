"""Records put into a kernel: where each stands, and with which registers."""
