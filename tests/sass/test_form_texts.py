"""Classes of values in instructions' fields, by which their forms differ."""

from __future__ import annotations

import pytest

from ikp.sass.disassembly.word_forms import (
    CONTROL,
    EXACT,
    LARGE,
    NEGATIVE,
    PLAIN,
    POWER,
    Forms,
    NumberField,
)

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize(
    ("kind", "width", "values", "found"),
    [
        ("i", 32, (0, 1, 0xFFFFFFFF, 0x80000000), EXACT),
        ("i", 32, (3, 0x12345), PLAIN),
        ("i", 32, (0xFFFFFFFE, 0x80000001), NEGATIVE),
        ("i", 32, (2, 4, 64), POWER),
        ("i", 32, (0x10000, 0x40000000), PLAIN),
        ("m", 32, (0, 1, 0x10000, 0x40000000), EXACT),
        ("m", 32, (2, 0x8000), POWER),
        ("m", 32, (3, 0x12345), PLAIN),
        ("i", 8, (0,), EXACT),
        ("i", 8, (1, 2, 0x7F), PLAIN),
        ("i", 8, (0x80, 0xFF), NEGATIVE),
        ("f", 32, (0, 0x80000000, 0x7F800000, 0xFFC00000), EXACT),
        ("f", 32, (0x3F800000, 0xBF800000, 0x00000001, 0x80000001), PLAIN),
        ("h", 16, (0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x3C00, 0x3F80), EXACT),
        ("h", 16, (0x3C01, 0xBC00, 0x8001, 0x0400), PLAIN),
        ("R", 8, (255,), EXACT),
        ("R", 8, (254, 0), PLAIN),
        ("P", 3, (7,), EXACT),
        ("P", 3, (6,), PLAIN),
        ("f", 32, (0x4F000000, 0xCF000000, 0x7F000000), LARGE),
        ("far", 32, (0, 0xFFFFFFFF), PLAIN),
    ],
)
def test_values_whose_texts_are_alike_are_a_class(
    kind: str, width: int, values: tuple[int, ...], found: int
) -> None:
    field = NumberField(kind, 16, width)
    forms = Forms({0: (field,)}, ())
    made = [forms.form(field.put(0, each)) for each in values]
    assert {each is not None and each >> CONTROL for each in made} == {found}
