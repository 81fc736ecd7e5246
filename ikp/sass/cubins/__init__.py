"""The cubin file format: ELF, kernels, attributes, instruction words, constants and parameters."""
