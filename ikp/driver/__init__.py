"""The CUDA driver API through ctypes: calls, a memory pool, and a process that loads modules."""
