"""The memory that kernels record into: sized, handed out, read back; torch is loaded when asked."""
