"""Inspection of compiled kernels: the machine code in their ranges; needs no GPU and no DSL."""
