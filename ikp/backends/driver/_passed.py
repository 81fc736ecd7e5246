"""A driver launch's shape and parameter bytes: to repeat it elsewhere, and as the trace's text."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence

from ikp.backends.driver._hook import InterposedLaunch
from ikp.checking.messages import ATTRIBUTE_BYTES, LaunchConfiguration, kept_attributes
from ikp.driver import cuda_functions, devices
from ikp.sass.cubins.attributes import Parameter

_BYTES = 4096
"""Bytes of parameters that a trace keeps, structures among them: strides are in these."""
_MOST = 64
"""Parameters that a trace keeps."""
_PACKED = 1
"""CU_LAUNCH_PARAM_BUFFER_POINTER: the key before the address of parameters in one buffer."""


def shape(launch: InterposedLaunch, plain: int) -> LaunchConfiguration:
    """Return the shape of a launch: grid, block, shared memory, attributes and settings.

    Args:
        launch: as the program asks for it.
        plain: the function.
    """
    size = ATTRIBUTE_BYTES * launch.count
    attributes = ctypes.string_at(launch.attributes, size) if size else b""
    return LaunchConfiguration(
        (launch.grid[0], launch.grid[1], launch.grid[2]),
        (launch.block[0], launch.block[1], launch.block[2]),
        launch.shared,
        kept_attributes(attributes, cooperative=bool(launch.cooperative)),
        cuda_functions.settings(plain),
        devices.limits(),
    )


def values(launch: InterposedLaunch, parameters: Sequence[Parameter]) -> list[tuple[int, bytes]]:
    """Return the offset and the bytes of each parameter of a launch."""
    return [(each.offset, _value(launch, each)) for each in parameters]


def values_as_text(launch: InterposedLaunch, parameters: Sequence[Parameter]) -> str:
    """Return the values of a launch's parameters as a trace keeps them; see ``PARAMETERS``.

    Those that begin beyond the first ``_BYTES`` are left out.
    """
    kept = [each for each in parameters if each.offset + each.size <= _BYTES][:_MOST]
    found = values(launch, kept)
    return json.dumps({str(offset): value.hex() for offset, value in found})


def _value(launch: InterposedLaunch, parameter: Parameter) -> bytes:
    if launch.params:
        address = launch.params[parameter.ordinal]
    else:
        packed = _packed(launch)
        address = packed and packed + parameter.offset
    return ctypes.string_at(address, parameter.size) if address else bytes(parameter.size)


def _packed(launch: InterposedLaunch) -> int:
    """Return the address of the buffer with a launch's parameters; 0 where there is none."""
    at = 0
    while launch.extra and (key := launch.extra[at]):
        if key == _PACKED:
            return int(launch.extra[at + 1] or 0)
        at += 2
    return 0
