"""The CUDA driver API through ctypes: its calls, a memory pool, and a process that loads modules."""
