"""Two tables of what instructions read and write agree: the library's, and one of these tests."""

from __future__ import annotations

import pytest

from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.reading import code_of
from ikp.sass.disassembly.effects import effects
from ikp.sass.disassembly.listing import Instruction
from tests.sass import compiled, module, second_reading

pytestmark = pytest.mark.any_pins


def _assert_equal(each: Instruction) -> None:
    guard = f"@{each.guard} " if each.guard else ""
    second = second_reading.effect(f"{guard}{each.opcode} {each.rest}".rstrip())
    assert tuple(effects(each)) == tuple(second), each.text


@pytest.mark.compiled
@pytest.mark.parametrize("name", [name for name in compiled.CASES if "sm_" not in name])
def test_both_readings_of_a_kernel_of_triton_agree(name: str) -> None:
    for each in compiled.machine(name).flow.code.instructions:
        _assert_equal(each)


@pytest.mark.compiled
@pytest.mark.parametrize("name", module.KERNELS)
def test_both_readings_of_a_kernel_of_all_forms_agree(name: str) -> None:
    cubin = module.cubin()
    for each in code_of(cubin, Cubin.read(cubin), name).instructions:
        _assert_equal(each)


@pytest.mark.parametrize(
    "text",
    [
        "LDTM.16dp32bit_t0_t15.x32 R4, tmem[UR8]", "LDTM.x16 R4, tmem[UR8+0x20]",
        "STTM.x8 tmem[UR8], R4", "CS2R.32 R17, SR_CLOCKLO", "CS2R R18, SR_CLOCKLO",
        "HGMMA.64x64x16.F32 R24, gdesc[UR12], R24, gsb0", "R2UR UR25, R8",
        "HGMMA.64x64x16.F32 R24, R4, gdesc[UR12], !UPT, gsb0",
        "IGMMA.64x128x32.S8.S8 R24, gdesc[UR8], R24, gsb0", "BRXU UR4 -0x90", "BRX R4 -0x3400",
    ],
)  # fmt: skip
def test_both_readings_of_forms_that_a_table_had_wrong_agree(text: str) -> None:
    opcode, _, rest = text.partition(" ")
    _assert_equal(Instruction(0, "", opcode, rest))
