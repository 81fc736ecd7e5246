"""Which chips records are known for, and what is told of those that none was ever run on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ikp.errors import PatchError
from ikp.sass.assembly.chips import CHIPS, UNTESTED, State, chip_of, untested_asked
from ikp.sass.cubins.attributes import Attribute, AttributeCode
from ikp.sass.cubins.cubin import Cubin
from tests.sass.module import cubin

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

DOCS = Path(__file__).parents[2] / "docs" / "unedited-kernels.md"


def test_the_documentation_lists_each_chip_with_its_state() -> None:
    rows = re.findall(r"^\| (sm_[^|]+) \| (\w+) \|", DOCS.read_text(), re.MULTILINE)
    told = {name: state for names, state in rows for name in re.findall(r"sm_\d+", names)}
    known = {chip.name: chip.state.value for chip in CHIPS}
    assert {name: state for name, state in told.items() if state != "refused"} == known


@pytest.mark.parametrize(
    ("value", "asked"), [(None, False), ("", False), ("0", False), ("1", True)]
)
def test_chips_that_none_was_run_on_are_asked_for(monkeypatch, value, asked: bool) -> None:
    monkeypatch.delenv(UNTESTED, raising=False)
    if value is not None:
        monkeypatch.setenv(UNTESTED, value)
    assert untested_asked() is asked


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a"])
def test_a_kernel_finds_its_parameters_where_its_chip_has_them(name: str) -> None:
    file = Cubin.read(cubin(name))
    kernel = file.kernel("loop")
    chip = chip_of(file.sm, kernel, untested=True)
    assert chip.name == name.rstrip("a")
    assert bool(chip.notes) == (chip.state is not State.RUN)
    stands = next(each for each in kernel.attributes if each.code == AttributeCode.PARAM_CBANK)
    moved = Attribute(stands.format, stands.code, stands.data[:4] + b"\x00\x01" + stands.data[6:])
    kernel.attributes = [moved if each is stands else each for each in kernel.attributes]
    with pytest.raises(PatchError, match="has its parameters at 0x100"):
        chip_of(file.sm, kernel, untested=True)


def test_a_chip_has_the_warps_and_the_shared_memory_of_its_compute_capability() -> None:
    """As NVIDIA's table of compute capabilities lists them: warps of an SM, KB of a block."""
    small, large = (48, 99), (64, 227)
    listed = {80: (64, 163), 86: small, 89: small, 90: large, 100: large, 103: large, 120: small}
    known = {int(chip.name.removeprefix("sm_")): (chip.warps, chip.shared) for chip in CHIPS}
    assert known == listed
