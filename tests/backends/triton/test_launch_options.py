"""Kernels compiled as users launch them: all block sizes, clusters, wrappers, real arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import triton
from triton.backends.compiler import GPUTarget

import ikp
from ikp.backends.argument import argument
from ikp.backends.triton._hooks import names_in_code
from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import Segment
from tests.backends.sass import (
    LOCAL_MEMORY,
    SYNCHRONISING,
    compile_kernel,
    spec,
)
from tests.kernels import control, wrapped
from tests.kernels.expected import KERNELS
from tests.machines.ptx_machine import Machine

pytestmark = pytest.mark.compiled

OUT_AND_N = {"out": "*i32", "n": "i32"}


@pytest.mark.parametrize("warps", [1, 2, 4, 8, 16, 32])
def test_any_number_of_warps(warps: int) -> None:
    plain = compile_kernel(control.nested, OUT_AND_N, None, num_warps=warps)
    recorded = compile_kernel(control.nested, OUT_AND_N, spec(), num_warps=warps)
    assert recorded.count(SYNCHRONISING) == plain.count(SYNCHRONISING)
    assert recorded.count(LOCAL_MEMORY) == {}
    assert set(names_in_code(recorded.ptx).values()) == {
        name for name, _ in KERNELS["nested"](0, 4)
    }
    assert f".reqntid {32 * warps}" in recorded.ptx


def test_a_block_of_1024_threads_has_32_slots() -> None:
    code = compile_kernel(control.early_return, OUT_AND_N, spec(), num_warps=32)
    machine = Machine()
    size = abi.segment_bytes(64, 2)
    segment = machine.memory.map(0x7F00_0000_0000, size)
    machine.memory.map(0x7E00_0000_0000, 8)
    params = [0x7E00_0000_0000, 3, 0x7F00_0000_0000, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    machine.launch(code.ptx, params, (2, 1, 1), (1024, 1, 1))
    trace = decode([SegmentSource("k", segment)], names_in_code(code.ptx))
    assert len(trace.slots) == 64
    assert trace.slots.attempted.tolist() == [2] * 32 + [1] * 32
    assert np.array_equal(trace.slots.warp, np.tile(np.arange(32), 2))


def test_clusters_of_two_blocks() -> None:
    plain = compile_kernel(control.nested, OUT_AND_N, None, num_ctas=2)
    recorded = compile_kernel(control.nested, OUT_AND_N, spec(), num_ctas=2)
    assert recorded.compiled.metadata.num_ctas == 2
    assert recorded.count(SYNCHRONISING) == plain.count(SYNCHRONISING)
    assert len(names_in_code(recorded.ptx)) == len({name for name, _ in KERNELS["nested"](0, 4)})


class FakeDriver:
    """Tells Triton that an H100 is there; nothing can be launched on it."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(triton.runtime.driver, "_active", FakeDriver())
    ikp.backends.triton.TritonBackend()
    yield
    wrapped.scale.device_caches.clear()


def buffer() -> Any:
    """Return a ``prof`` argument as a session on a GPU would."""
    import torch

    data = torch.zeros(4096, dtype=torch.uint8)
    return argument(Segment("k", data, spec(), "triton", "a GPU", 0.0))


def numbers() -> Any:
    import torch

    return torch.zeros(256, dtype=torch.int32)


@pytest.mark.usefixtures("gpu")
def test_a_launch_takes_what_the_session_hands_out() -> None:
    kernel = wrapped.scale.warmup(numbers(), 256, buffer(), 64, True, "launched", grid=(4,))
    assert list(names_in_code(kernel.asm["ptx"]).values()) == ["launched"]
    off = wrapped.scale.warmup(numbers(), 256, None, 64, True, "launched", grid=(4,))
    assert names_in_code(off.asm["ptx"]) == {}
    assert "%clock" not in off.asm["ptx"]


@pytest.mark.usefixtures("gpu")
def test_kernels_for_another_clock_or_mode_are_compiled_anew() -> None:
    import torch

    made = set()
    for mode in abi.OverflowMode:
        for clock in (abi.ClockKind.CYCLES, abi.ClockKind.GLOBALTIMER):
            data = torch.zeros(4096, dtype=torch.uint8)
            prof = argument(Segment("k", data, spec(mode, clock), "triton", "a GPU", 0.0))
            kernel = wrapped.scale.warmup(numbers(), 256, prof, 64, True, "k", grid=(4,))
            made.add(kernel.asm["ptx"])
    assert len(made) == 2 * len(abi.OverflowMode)


@pytest.mark.usefixtures("gpu")
def test_another_buffer_of_the_same_session_is_not_compiled_again() -> None:
    kernels = [
        wrapped.scale.warmup(numbers(), 256, buffer(), 64, True, "again", grid=(4,))
        for _ in range(2)
    ]
    assert kernels[0] is kernels[1]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("n", [256, 250])
def test_a_kernel_with_heuristics(n: int) -> None:
    kernel = wrapped.heuristic.warmup(numbers(), n, buffer(), BLOCK=64, NAME="heuristic", grid=(4,))
    assert list(names_in_code(kernel.asm["ptx"]).values()) == ["heuristic"]
    assert (kernel.asm["ptx"].count("setp.lt.s32") > 0) == (n % 64 != 0)


@pytest.mark.usefixtures("gpu")
def test_an_autotuned_kernel() -> None:
    kernels = wrapped.autotuned.warmup(numbers(), 256, buffer(), NAME="autotuned", grid=(4,))
    assert [kernel.metadata.num_warps for kernel in kernels] == [1, 4]
    for kernel in kernels:
        assert list(names_in_code(kernel.asm["ptx"]).values()) == ["autotuned"]
