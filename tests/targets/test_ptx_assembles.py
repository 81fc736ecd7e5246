"""NVIDIA's assembler accepts what the PTX machine is given in the other tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ikp.backends.triton.passes.entry import complete
from ikp.backends.triton.passes.schedule import schedule
from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from tests.machines.ptx_kernel import Kernel

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("mode", OverflowMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("clock", [ClockKind.CYCLES, ClockKind.GLOBALTIMER], ids=lambda c: c.name)
def test_every_block_of_assembly(mode: OverflowMode, clock: ClockKind, tmp_path: Path) -> None:
    from tests.backends.sass import assemble

    kernel = Kernel(mode, clock)
    kernel.init()
    kernel.add("mov.b32 %r7, 5;", "setp.eq.u32 %p1, %r7, 5;")
    kernel.end(3, kernel.start(), "%r7", 'a "name"')
    kernel.end("%r7", kernel.start(), "%r7")
    kernel.instant(4, name="other")
    kernel.instant("%r7")
    kernel.add("@%p1 ret;")
    kernel.finish()
    for text in (kernel.text(), complete(kernel.text()), schedule(complete(kernel.text()))):
        assemble(text, tmp_path)


@pytest.mark.parametrize("clock", [ClockKind.CYCLES, ClockKind.GLOBALTIMER], ids=lambda c: c.name)
def test_totals(clock: ClockKind, tmp_path: Path) -> None:
    from tests.backends.sass import assemble

    kernel = Kernel(clock=clock, totals=True)
    kernel.init()
    kernel.add("mov.b32 %r7, 5;", "setp.eq.u32 %p1, %r7, 5;")
    kernel.count_range(abi.REGION_MASK, kernel.start(), where="%r7")
    kernel.count_range(3, kernel.start())
    kernel.count_instant(3, where="%r7")
    kernel.count_instant(0)
    kernel.add("@%p1 ret;")
    kernel.finish()
    for text in (complete(kernel.text()), schedule(complete(kernel.text()))):
        assemble(text, tmp_path)
