"""Parameters that a trace keeps: whole structures, as far as there is room."""

import ctypes
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.backends.driver._passed import values_as_text
from ikp.sass.cubins.attributes import Parameter

pytestmark = pytest.mark.any_pins


def passed(*sizes: int) -> dict[str, str]:
    """Return what a trace keeps of a launch with parameters of some sizes."""
    made, buffers, offset = [], [], 0
    for ordinal, size in enumerate(sizes):
        made.append(Parameter(ordinal, offset, size))
        buffers.append(ctypes.create_string_buffer(bytes([ordinal + 1]) * size, size))
        offset += size
    launch: Any = SimpleNamespace(params=[ctypes.addressof(each) for each in buffers], extra=None)
    found: dict[str, str] = json.loads(values_as_text(launch, made))
    return found


def test_structures_are_kept_with_the_strides_in_them() -> None:
    assert passed(8, 176) == {"0": "01" * 8, "8": "02" * 176}


def test_what_lies_far_behind_is_left_out() -> None:
    assert passed(8, 4096, 8) == {"0": "01" * 8}
