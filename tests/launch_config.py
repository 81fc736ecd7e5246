"""``CUlaunchConfig``, as CUDA's header has it: programs of the tests launch by it."""

from __future__ import annotations

import ctypes


class Config(ctypes.Structure):
    """How ``cuLaunchKernelEx`` is asked to launch."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )
