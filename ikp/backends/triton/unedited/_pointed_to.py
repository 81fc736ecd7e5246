"""What the arguments of a launch are called that point to memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def names(values: Sequence[object], names: Sequence[str]) -> dict[int, str]:
    """Return the names of arguments, by the addresses that they point to.

    Args:
        values: what Triton's launcher is called with; the last ones are the kernel's arguments.
        names: of those.
    """
    pairs = zip(reversed(names), reversed(values), strict=False)
    found: dict[int, list[str]] = {}
    for name, value in reversed([*pairs]):
        for inner, address in _of(name, value):
            found.setdefault(address, []).append(inner)
    return {address: " and ".join(each) for address, each in found.items()}


def _of(name: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, (tuple, list)):
        for number, each in enumerate(value):
            yield from _of(f"{name}[{number}]", each)
    elif callable(getattr(value, "data_ptr", None)):
        yield name, int(value.data_ptr())
    elif hasattr(value, "base") and hasattr(value, "block_shape"):  # a tensor descriptor
        yield from _of(name, value.base)
