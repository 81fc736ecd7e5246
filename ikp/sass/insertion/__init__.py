"""Insertion of instructions into a kernel, with updates of branches, symbols and debug tables."""
