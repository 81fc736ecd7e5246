"""The passes over a kernel's PTX, between Triton's compiler and the assembler."""
