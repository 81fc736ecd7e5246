"""What to mark in kernels that nobody edited, for any language."""
