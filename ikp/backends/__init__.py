"""ikp's own languages, one package each, and the argument that their kernels share."""
