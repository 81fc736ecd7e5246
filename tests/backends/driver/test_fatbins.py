"""Which machine code is taken of what a program hands the driver."""

from __future__ import annotations

import struct
from contextlib import nullcontext
from typing import Any

import pytest

from ikp.backends.driver import _chip_cubins
from ikp.backends.driver._chip_cubins import NoCodeError
from ikp.backends.driver._chip_cubins import cubin as chosen
from tests.sass.assembled import cubin

pytestmark = [pytest.mark.any_pins, pytest.mark.compiled]

PTX = ".visible .entry does() { ret; }"
MADE = {chip: cubin(PTX, f"sm_{chip}") for chip in ("80", "86", "90", "90a", "100")}


def together(chips: list[str]) -> bytes:
    """Return files for some chips in one, as nvcc writes it."""
    body = b""
    for chip in chips:
        padded = MADE[chip] + bytes(-len(MADE[chip]) % 8)
        body += struct.pack("<HHIQ", 2, 0x101, 64, len(padded))
        body += struct.pack("<QHHIQQQQ", 0, 7, 1, int(chip.strip("a")), 0, 0x11, 0, 0) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


@pytest.mark.parametrize(
    ("chip", "expected"), [((9, 0), "90a"), ((8, 0), "80"), ((8, 9), "86"), ((10, 3), "100")]
)
def test_the_code_is_the_chips_or_an_older_ones_of_its_generation(
    chip: tuple[int, int], expected: str
) -> None:
    code = chosen(together(list(MADE)), "does", chip)
    assert code.rstrip(b"\0") == MADE[expected].rstrip(b"\0")


def test_without_code_for_its_generation_the_driver_compiles_it() -> None:
    with pytest.raises(NoCodeError, match="without machine code for sm_120"):
        chosen(together(["80", "100"]), "does", (12, 0))


def test_an_image_is_unpacked_once_for_all_of_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes half a second for a library of many kernels, and each launch of a new one asks."""
    image, asked = together(["80", "90"]), list[object]()
    run = _chip_cubins.children.run

    def counted(*given: Any, **options: Any) -> Any:
        asked.append(given)
        return run(*given, **options)

    monkeypatch.setattr(_chip_cubins.children, "run", counted)
    for name in ("does", "does not", "does"):
        with nullcontext() if name == "does" else pytest.raises(NoCodeError):
            chosen(image, name, (9, 0))
    assert len(asked) == 1
    chosen(together(["86", "90"]), "does", (9, 0))
    assert len(asked) == 2
