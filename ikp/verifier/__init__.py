"""An independent verifier: a patched cubin must be the plain one and its declared probes.

It reads both cubins with their disassembly, and of the patching only what that declares. It shares
tables and the parsing of files with the patching, but no analysis, so that it finds errors there.
"""
