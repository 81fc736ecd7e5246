"""Names of a launch's pointer arguments, by the addresses that they point to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def names(values: Sequence[object], names: Sequence[str]) -> dict[int, str]:
    """Return the names of arguments, by the addresses that they point to.

    Args:
        values: arguments of Triton's launcher; the last ones are the kernel's arguments.
        names: of the kernel's arguments.
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
