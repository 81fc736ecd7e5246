"""The ``prof`` argument of a Triton, Gluon or CuTe kernel: one class for all of them.

A buffer serves kernels of each language, whichever backend it was taken from. The program may
import the other language before it takes the buffer or after. So the methods that the languages ask
of an argument are on the class itself. CuTe has a registry of adapters for types of others. But in
a program that takes its buffer from Triton's backend, no code would register this type there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from ikp.core.abi import LAUNCH_HEADER_BYTES
from ikp.core.segment import Segment, Tensor


class Argument(NamedTuple):
    """Memory and its size at run time, a spec at compile time.

    Triton and Gluon take it as the tuple it is. CuTe takes it by its protocol for arguments, the
    methods below. On the host the members are a tensor and an integer. While a kernel is traced
    they are the language's ``Int64`` and ``Int32``.
    """

    data: Any  # uint8 tensor; a pointer or an address in the kernel
    slots_bytes: Any  # bytes after the launch header; 0 turns recording off at run time
    spec: Any  # the text of a Spec; Triton's constexpr of it where Triton is installed

    @property
    def spec_text(self) -> str:
        """The text of the spec."""
        return str(getattr(self.spec, "value", self.spec))

    @property
    def address(self) -> int:
        """The memory's address, on the host's side; 0 where there is no memory."""
        return 0 if self.data is None else self.data.data_ptr()

    def __c_pointers__(self) -> list[int]:
        # CuTe reads the words after this returns, in several threads: they live with the memory.
        kept = _OFF if self.data is None else self.data.__dict__.setdefault("ikp_words", {})
        new = ctypes.c_int64(self.address), ctypes.c_int32(self.slots_bytes)
        return [ctypes.addressof(word) for word in kept.setdefault(self.slots_bytes, new)]

    def __get_mlir_types__(self) -> list[Any]:
        from cutlass import Int32, Int64

        return [Int64.mlir_type, Int32.mlir_type]

    def __extract_mlir_values__(self) -> list[Any]:
        return [self.data.ir_value(), self.slots_bytes.ir_value()]

    def __new_from_mlir_values__(self, values: list[Any]) -> Argument:
        from cutlass import Int32, Int64

        return Argument(Int64(values[0]), Int32(values[1]), self.spec)

    def __cache_key__(self) -> str:
        return self.spec_text


_OFF: dict[int, Any] = {}
"""The words of an argument without memory, which record nothing."""


def argument(segment: Segment) -> Argument:
    """Return the ``prof`` argument for one launch that records into ``segment``."""
    made = bare(segment)
    return made._replace(spec=_constant(made.spec))


def bare(segment: Segment) -> Argument:
    """Return what ``argument`` does for a launch whose kernel takes no such argument."""
    size = segment.nbytes - LAUNCH_HEADER_BYTES if segment.enabled else 0
    return Argument(segment.data, size, str(segment.spec))


def repeated(prof: Argument) -> Callable[[Tensor], Argument]:
    """Return a function that makes the argument of another buffer like that of ``prof``."""
    size, spec = prof.slots_bytes, prof.spec
    return lambda data: Argument(data, size, spec)


@lru_cache(64)
def _constant(text: str) -> Any:
    """Return the text of a spec as Triton wants a tuple's constant; CuTe takes any."""
    with suppress(ModuleNotFoundError):
        from triton.language import constexpr

        return constexpr(text)
    return text
