"""What kernels call, in any language, and what each language's adapter is asked in turn."""
