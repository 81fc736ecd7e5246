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
    check(plain)


def check(code: Code) -> None:
    assert code.size == len(code.instructions)
    assert code.names == [opcode(text) for text in code.instructions]
    assert code.clock_reads == sum(bool(CLOCKS.search(text)) for text in code.instructions)


def test_spills_and_clock_reads_are_counted_as_the_disassembler_prints_them() -> None:
    spilled = compiled(40, 90, ClockKind.CYCLES, maxnreg=24)
    timed = compiled(2, 90, ClockKind.GLOBALTIMER64)
    check(spilled)
    check(timed)
    assert spilled.count(LOCAL_MEMORY) and spilled.clock_reads > timed.clock_reads > 0
