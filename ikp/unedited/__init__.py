"""Plans for unedited kernels, for any language: what to mark, at which level, in which launches."""
