"""The memory that the arguments of a launch point to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ikp.errors import PatchError
from ikp.machine import cuda
from ikp.machine.rehearsal import Buffer, apart


def buffers(values: Sequence[object], names: Sequence[str]) -> list[Buffer]:
    """Return the buffers that a kernel may write.

    Of a tensor, its storage: an allocation of torch's holds other tensors, too. Of anything else
    with a pointer, the allocation around it.

    Args:
        values: what Triton's launcher is called with; the last ones are the kernel's arguments.
        names: of those.
    """
    first = len(values) - len(names)
    told = [*(f"argument {n}" for n in range(max(first, 0))), *names[max(-first, 0) :]]
    pairs = zip(told, values, strict=False)
    return apart([found for name, value in pairs for found in _of(name, value)])


def _of(name: str, value: Any) -> Iterator[Buffer]:
    if isinstance(value, (tuple, list)):
        for number, each in enumerate(value):
            yield from _of(f"{name}[{number}]", each)
    elif hasattr(value, "untyped_storage"):
        if getattr(value, "is_cuda", False):
            storage = value.untyped_storage()
            yield Buffer(name, int(storage.data_ptr()), int(storage.nbytes()))
    elif callable(getattr(value, "data_ptr", None)):
        yield from _allocated(name, int(value.data_ptr()))
    elif hasattr(value, "base") and hasattr(value, "block_shape"):  # a tensor descriptor
        yield from _of(name, value.base)


def _allocated(name: str, pointer: int) -> Iterator[Buffer]:
    try:
        base, size = cuda.allocation(pointer)
    except PatchError:
        return  # not the device's
    yield Buffer(name, base, size)
