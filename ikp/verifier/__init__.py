"""An independent verifier: a patched cubin must be the plain one and its declared probes.

It reads the two cubins, and nothing of the patching but what that declares.
It shares no code with the patching of kernels, so that it finds errors of that code.
"""
