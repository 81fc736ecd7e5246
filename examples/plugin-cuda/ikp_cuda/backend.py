"""The backend that the entry point names: CUDA C++ as the host sees it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from ikp.plugins import Language, Segment, Spec, abi
from ikp_cuda import regions

INTERFACE = 2
"""The version of ikp's plugin interface that this package was written for: a literal. To copy
``ikp.plugins.INTERFACE`` would claim to fit whatever version is installed.
"""


class Prof(ctypes.Structure):
    """``ikp::Prof`` of ``ikp.cuh``, by value: what a kernel takes."""

    _fields_ = (("segment", ctypes.c_uint64), ("bytes", ctypes.c_uint32))


@dataclass(frozen=True, slots=True)
class Argument:
    """What ``prof.buffer(label)`` returns: the kernel's argument and how to compile for it."""

    data: Any  # uint8 tensor: the segment; held so that it outlives the launch
    prof: Prof
    spec: Spec


class CudaBackend:
    """The host's side of ``ikp.cuh``."""

    interface = INTERFACE
    languages = (Language("CUDA C++"),)

    @staticmethod
    def adapter(semantic: Any, verb: str) -> None:
        """Answer nothing: no Python runs for a kernel in C++, whose verbs are ``ikp.cuh``'s."""

    def device_type(self) -> str:
        """Return "cuda": C++ kernels run nowhere else."""
        return "cuda"

    def argument(self, segment: Segment) -> Argument:
        """Return what ``Kernel.launch`` takes for the parameter of type ``ikp::Prof``."""
        size = segment.nbytes - abi.LAUNCH_HEADER_BYTES if segment.enabled else 0
        return Argument(segment.data, Prof(segment.data.data_ptr(), size), segment.spec)

    def names(self) -> dict[int, str]:
        """Return the regions of every source compiled in this process."""
        return regions.known()
