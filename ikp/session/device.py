"""``Device``: a GPU or the host, by torch's names; its memory as ``DeviceBytes``; torch, where the
program has it.

ikp imports no torch into a program that has none: torch takes seconds, brings CUDA libraries of
other versions than the program's, and a profiler that prints on its stderr (decision 296). So
memory of the CUDA driver is ``DeviceBytes``, as much of a tensor as sessions need. Where a program
wants a tensor of it, for a kernel with verbs, torch makes one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ikp.core.segment import Tensor
from ikp.errors import UsageError


@dataclass(frozen=True, slots=True)
class Device:
    """A device: "cpu", "cuda:0"; "cuda" is the current GPU."""

    type: str
    index: int | None = None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


HOST: Final = Device("cpu")


def device_of(named: Any) -> Device:
    """Return the device that a user names: a torch device, "cuda:1", or the number of a GPU.

    Raises:
        UsageError: it names none.
    """
    if isinstance(named, Device):
        return named
    if isinstance(named, int) and not isinstance(named, bool) and named >= 0:
        return Device("cuda", named)
    kind, index = getattr(named, "type", None), getattr(named, "index", None)
    if isinstance(kind, str) and (index is None or isinstance(index, int)):
        return Device(kind, index)
    if isinstance(named, str):
        kind, colon, number = named.partition(":")
        if _is_a_kind(kind) and (not colon or number.isdecimal()):
            return Device(kind, int(number) if colon else None)
    raise UsageError(f"device={named!r} is no torch device: use 'cuda', 'cuda:1' or 'cpu'.")


def _is_a_kind(name: str) -> bool:
    """Return whether a program may mean a kind of devices: the CPU, GPUs, or another of torch's."""
    if name in ("cpu", "cuda"):
        return True
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True


def torch_of_program() -> Any | None:
    """Return torch, where the program has imported all of it; else, or where it is a build for the
    CPU alone, which knows no GPU that the program uses otherwise, None.
    """
    found = sys.modules.get("torch")
    if found is None or getattr(getattr(found, "__spec__", None), "_initializing", False):
        return None
    backends = getattr(found, "backends", None)
    return found if backends is not None and backends.cuda.is_built() else None


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
