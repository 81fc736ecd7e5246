"""An independent verifier: from two cubins alone, a patched kernel is the plain one and its probes.

It shares no code with the patching of kernels, so that it finds errors of that code.
"""
