"""The values of a launch's arguments, as the bytes of the kernel's parameters."""

from __future__ import annotations

import json

import pytest

from ikp.backends.triton.unedited._arguments import as_text
from ikp.sass.cubins.attributes import Parameter

pytestmark = pytest.mark.any_pins


class Tensor:
    def data_ptr(self) -> int:
        return 0x7F0000001000


PARAMETERS = [Parameter(0, 0, 8), Parameter(1, 8, 4), Parameter(2, 12, 4), Parameter(3, 16, 8)]


def test_values_stand_at_their_parameters_offsets() -> None:
    names = ["x", "BLOCK", "n", "scale"]
    types = {"x": "*fp16", "BLOCK": "constexpr", "n": "i32", "scale": "fp32"}
    said = json.loads(as_text(PARAMETERS, names, types, ("hook", Tensor(), 128, -2, 0.5)))
    assert {at: bytes.fromhex(value) for at, value in said.items()} == {
        "0": (0x7F0000001000).to_bytes(8, "little"),
        "8": (-2).to_bytes(4, "little", signed=True),
        "12": b"\x00\x00\x00\x3f",
    }


def test_nothing_is_said_behind_a_value_that_is_not_understood() -> None:
    names = ["x", "pair", "n"]
    types = {"x": "*fp16", "pair": "tuple", "n": "i32"}
    said = json.loads(as_text(PARAMETERS, names, types, (Tensor(), (1, 2), 3)))
    assert list(said) == ["0"]


def test_a_number_that_is_too_large_breaks_no_launch() -> None:
    said = json.loads(as_text(PARAMETERS[1:], ["n"], {"n": "i32"}, (1 << 70,)))
    assert said == {"8": "00000000"}
