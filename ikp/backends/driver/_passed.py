"""How a program launches a kernel, and what it passes: copied for another process."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ikp.backends.driver._hook import Launch
from ikp.checking.request import ATTRIBUTE_BYTES, Shape, kept_attributes
from ikp.driver import cuda
from ikp.sass.cubins.attributes import Parameter

_PACKED = 1
"""What stands before the parameters' address, where a launch has them in one piece."""


def shape(launch: Launch, plain: int) -> Shape:
    """Return how a kernel is launched, but for its arguments.

    Args:
        launch: as the program asks for it.
        plain: the function.
    """
    size = ATTRIBUTE_BYTES * launch.count
    attributes = ctypes.string_at(launch.attributes, size) if size else b""
    return Shape(
        (launch.grid[0], launch.grid[1], launch.grid[2]),
        (launch.block[0], launch.block[1], launch.block[2]),
        launch.shared,
        kept_attributes(attributes, cooperative=bool(launch.cooperative)),
        cuda.settings(plain),
        cuda.limits(),
    )


def values(launch: Launch, parameters: Sequence[Parameter]) -> list[tuple[int, bytes]]:
    """Return what a launch passes for each parameter: where it begins, and its bytes."""
    return [(each.offset, _value(launch, each)) for each in parameters]


def _value(launch: Launch, parameter: Parameter) -> bytes:
    if launch.params:
        address = launch.params[parameter.ordinal]
    else:
        packed = _packed(launch)
        address = packed and packed + parameter.offset
    return ctypes.string_at(address, parameter.size) if address else bytes(parameter.size)


def _packed(launch: Launch) -> int:
    """Return where a launch has its parameters in one piece; 0 where it has them otherwise."""
    at = 0
    while launch.extra and (key := launch.extra[at]):
        if key == _PACKED:
            return int(launch.extra[at + 1] or 0)
        at += 2
    return 0
