"""What other tests count in machine code from its bits is what NVIDIA's disassembler prints."""

from __future__ import annotations

import pytest

from ikp.core.abi import ClockKind
from tests.backends.opcodes import CLOCKS, opcode
from tests.backends.sass import CAPABILITIES, LOCAL_MEMORY, Code, compile_kernel, spec
from tests.kernels import gemm
from tests.kernels.straight import straight

pytestmark = pytest.mark.compiled


def compiled(records: int, capability: int, clock: ClockKind, **options: int) -> Code:
    constants = {"STORES": 40, "RECORDS": records, "KIND": "functional"}
    types = {"x": "*i32", "p": "i32"}
    return compile_kernel(straight, types, spec(clock=clock), constants, capability, **options)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_instructions_are_counted_as_the_disassembler_prints_them(capability: int) -> None:
    off = {"LOAD": False, "DOT": False, **gemm.TILES}
    plain = compile_kernel(
        gemm.gemm, gemm.TYPES, None, off, capability, divisible=True, **gemm.OPTIONS
    )
    spilled = compiled(40, capability, ClockKind.CYCLES, maxnreg=24)
    timed = compiled(2, capability, ClockKind.GLOBALTIMER64)
    for each in (plain, spilled, timed):
        assert each.size == len(each.instructions)
        assert each.names == [opcode(text) for text in each.instructions]
        assert each.clock_reads == sum(bool(CLOCKS.search(text)) for text in each.instructions)
    assert spilled.count(LOCAL_MEMORY) and spilled.clock_reads > timed.clock_reads > 0
