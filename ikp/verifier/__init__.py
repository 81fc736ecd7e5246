"""Proves of a patched kernel, from both cubins alone, that it is the plain one and what was added.

Nothing here is shared with what patches kernels: an error of that is to be found here.
"""
