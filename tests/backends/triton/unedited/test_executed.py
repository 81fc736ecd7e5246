"""Marked kernels compiled for a GPU and run, instruction by instruction, by the tests' machine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import triton

from ikp.backends.triton import TritonBackend
from ikp.backends.triton._hooks import names_in_code
from ikp.backends.triton.unedited._mark_nodes import PROF
from ikp.backends.triton.unedited._twins import kernel_twin
from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import Source
from ikp.unedited.plan import plan
from tests.backends.triton.unedited.compiling import FakeDriver, buffer
from tests.kernels import unedited
from tests.machines.ptx_machine import Machine

pytestmark = pytest.mark.compiled

OUT, SEGMENT = 0x7E00_0000_0000, 0x7F00_0000_0000


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", FakeDriver())
    TritonBackend()


def counts(kernel: Any, n: int, level: str) -> tuple[Counter[str], bytes]:
    """Run a kernel ``(out, n)`` of one warp; return its records by name, and ``out``."""
    import torch

    twin = kernel_twin(kernel, plan("loops", level=level))
    out = torch.zeros(64, dtype=torch.int32)
    code = twin.warmup(out, n, grid=(1,), num_warps=1, **{PROF: buffer()})
    machine = Machine()
    size = abi.segment_bytes(1, 64)
    segment = machine.memory.map(SEGMENT, size)
    memory = machine.memory.map(OUT, 4 * 64)
    params = [OUT, n, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    machine.launch(code.asm["ptx"], params, (1, 1, 1), (32, 1, 1))
    names = names_in_code(code.asm["ptx"])
    trace = decode([Source("k", segment)], names)
    assert trace.slots.finished.all()
    assert [launch.dropped for launch in trace.launches] == [0]
    found = Counter(trace.regions[region].name for region in trace.events.region)
    return Counter({k.partition(" @")[0]: v for k, v in found.items()}), bytes(memory[: 4 * 64])


@pytest.mark.parametrize("n", [0, 2, 5])
@pytest.mark.parametrize(
    ("level", "loop"), [("source", "for i"), ("scheduled", "for")], ids=["source", "scheduled"]
)
def test_loops_and_iterations_are_recorded_as_often_as_they_run(
    level: str, loop: str, n: int
) -> None:
    kernel = unedited.made_in_a_function(7)
    found, memory = counts(kernel, n, level)
    assert found["kernel"] == found[loop] == 1
    assert found[f"{loop} iteration"] == n
    stored = [int.from_bytes(memory[4 * i : 4 * i + 4], "little") for i in range(8)]
    assert stored == [i + 7 if i < n else 0 for i in range(8)]
