"""PTX: parsing to statements, instructions and control flow, and instrumentation of its kernels."""
