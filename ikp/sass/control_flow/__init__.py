"""Control flow of a kernel: branches, basic blocks, dominators, loops, and divergence of warps."""
