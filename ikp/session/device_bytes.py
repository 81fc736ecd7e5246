"""``DeviceBytes``: memory of the CUDA driver, as much of a tensor as sessions need.

Where a program wants a tensor of it, for a kernel with verbs, torch makes one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ikp.core.segment import Tensor
from ikp.session.device import Device


class Allocation:
    """Memory of the driver; freed with the last bytes and tensors of it.

    Args:
        address: its address.
        gone: called with the address once nothing refers to it, in any thread.
    """

    __slots__ = ("_address", "_gone", "_pid")

    def __init__(self, address: int, gone: Callable[[int], None]) -> None:
        self._address, self._gone, self._pid = address, gone, os.getpid()

    def __del__(self) -> None:
        # In any thread, and perhaps while it captures a graph: the pool's thread frees the memory.
        if self._pid == os.getpid():
            self._gone(self._address)


class DeviceBytes:
    """Some bytes of an allocation on a GPU.

    Args:
        allocation: what is kept as long as the bytes are; None where there are none.
        address: of the first.
        nbytes: how many.
        device: the GPU.
    """

    __slots__ = ("_address", "_allocation", "_nbytes", "_tensor", "device", "ikp_handed")
    is_cuda = True

    def __init__(
        self, allocation: Allocation | None, address: int, nbytes: int, device: Device
    ) -> None:
        self._allocation, self._address, self._nbytes = allocation, address, nbytes
        self.device = device
        self._tensor: Tensor = None
        self.ikp_handed: Tensor = None  # the tensor that the next launch is handed, once made

    def data_ptr(self) -> int:
        """Return the address."""
        return self._address

    def numel(self) -> int:
        """Return how many bytes there are."""
        return self._nbytes

    def __getitem__(self, at: slice) -> DeviceBytes:
        start, stop, _ = at.indices(self._nbytes)
        return DeviceBytes(
            self._allocation, self._address + start, max(0, stop - start), self.device
        )

    def split(self, nbytes: int) -> list[DeviceBytes]:
        """Return parts of ``nbytes`` bytes, in order; the last may have fewer."""
        return [self[at : at + nbytes] for at in range(0, self._nbytes, nbytes)]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self._address, False),
            "shape": (self._nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def tensor(self) -> Tensor:
        """Return torch's tensor of the bytes, of shape ``(bytes,)``; torch is imported for it."""
        if self._tensor is None:
            import torch

            # Of other bytes than these: a tensor keeps what it is made of, which kept the tensor.
            self._tensor = torch.as_tensor(self[:], device=str(self.device))
        return self._tensor


def tensor_of(data: Tensor) -> Tensor:
    """Return torch's tensor of a segment's memory."""
    return data.tensor() if isinstance(data, DeviceBytes) else data


class NoBytes:
    """The memory of a segment whose records are on the host: none.

    Args:
        device: where it was.
    """

    __slots__ = ("device",)

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def is_cuda(self) -> bool:
        """Whether it was on a GPU."""
        return self.device.type == "cuda"

    @staticmethod
    def numel() -> int:
        """Return 0."""
        return 0

    @staticmethod
    def data_ptr() -> int:
        """Return 0."""
        return 0
