"""As much of torch as ikp needs to record in Triton's interpreter: memory of the host.

To import torch takes 4 s of a processor, in each process. Tests that start many processes put this
beside their programs (``use_slim_torch``). ``importlib.metadata`` finds the real torch there, too.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

__version__ = "0"
version = SimpleNamespace(cuda=None, hip=None)
_C = SimpleNamespace(_disabled_torch_function_impl=None)
cuda = ModuleType("torch.cuda")
cuda.is_available = lambda: False


class device:  # noqa: N801 - torch's name
    """The host."""

    def __init__(self, name: str | device) -> None:
        assert str(name) == "cpu"
        self.type, self.index = "cpu", None

    def __str__(self) -> str:
        return self.type


class Tensor:
    """All bytes of an array, under the names that Triton's interpreter and ikp read.

    It is its own storage, and the host's.
    """

    device = device("cpu")
    dtype = "torch.uint8"
    is_cuda = False

    def __init__(self, data: np.ndarray) -> None:
        self._data = data

    def __getitem__(self, at: slice) -> Tensor:
        return Tensor(self._data[at])

    def as_subclass(self, kind: type[Any]) -> Any:
        return kind(self._data)

    def numpy(self) -> np.ndarray:
        return self._data

    def data_ptr(self) -> int:
        return int(self._data.ctypes.data)

    def numel(self) -> int:
        return self._data.size

    size = numel

    def untyped_storage(self) -> Tensor:
        return self

    cpu = untyped_storage

    def storage_offset(self) -> int:
        return 0

    def stride(self) -> int:
        return 1

    def new_empty(self, size: int, device: str) -> Tensor:
        return Tensor(np.empty(size, np.uint8))

    def set_(self, storage: Tensor, offset: int, size: int, stride: int) -> None:
        self._data = storage._data

    def copy_(self, other: Tensor) -> None:
        assert other._data is self._data


from_numpy = Tensor
