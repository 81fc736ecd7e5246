"""The CUDA driver API through ctypes: calls, a memory pool, clock handshakes, replays, loading."""
