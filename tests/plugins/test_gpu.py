"""The plugin's kernels on a real GPU, through a session of its backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ikp
from ikp.core import abi
from ikp.errors import BufferError, KernelError, UsageError
from tests.plugins.kernels import NEEDS_NVCC, Modules

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, NEEDS_NVCC]

COUNTED = r"""
#include "ikp.cuh"
extern "C" __global__ void counted(float* x, unsigned n, ikp::Prof prof) {
  ikp::init(prof);
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  auto whole = ikp::start("whole", block);
  for (unsigned i = 0; i < n; ++i) {
    ikp::Range range("step", i);
    atomicAdd(x + block, 1.0f);
  }
  ikp::instant("done", 1.5f);
  ikp::instant(ikp::Region(7), -3);
  ikp::end(whole);
  ikp::finish();
}
extern "C" __global__ void spin(unsigned ns, ikp::Prof prof) {
  ikp::init(prof);
  {
    ikp::Range range("spin");
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < ns);
  }
  ikp::finish();
}
"""
MORE = 3  # records beyond those of the loop: done, region 7, whole


@pytest.fixture
def kernel(module: Modules) -> Any:
    return lambda name: module("launch").Kernel(COUNTED, name)


@pytest.mark.parametrize("threads", [(32, 1, 1), (256, 1, 1), (10, 5, 3), (1024, 1, 1)])
@pytest.mark.parametrize("grid", [(1, 1, 1), (300, 1, 1), (3, 4, 5)])
def test_every_record_of_every_warp_comes_back(kernel: Any, grid: Any, threads: Any) -> None:
    n, blocks, size = 17, int(np.prod(grid)), int(np.prod(threads))
    warps = -(-size // 32)
    x = torch.zeros(blocks, device="cuda")
    with ikp.profile(backend="cuda") as prof:
        buffer = prof.buffer("counted", regions={7: "seven"})
        kernel("counted").launch(grid, threads, x, n, buffer)
    assert (x == n * size).all()
    trace = prof.trace
    (launch,) = trace.launches
    assert (launch.grid, launch.block, launch.backend) == (grid, threads, "cuda")
    assert launch.attempted == launch.kept == blocks * warps * (n + MORE)
    assert trace.slots.finished.all()
    frame = trace.to_pandas()
    for (block, _), events in frame.groupby(["block", "warp"]):
        assert events.region.tolist() == ["step"] * n + ["done", "seven", "whole"]
        assert events.payload.tolist() == [*range(n), 1.5, -3, block]
        assert events.end_ns.is_monotonic_increasing
        assert (events.start_ns >= events.start_ns.iloc[-1]).all()
    assert frame.groupby(["block", "warp"]).ngroups == blocks * warps


@pytest.mark.parametrize("clock", ["cycles", "globaltimer"])
def test_a_known_duration(kernel: Any, clock: str) -> None:
    spin = kernel("spin")
    with ikp.profile(backend="cuda", clock=clock) as prof:
        spin.launch((264, 1, 1), (32, 1, 1), 200_000, prof.buffer("spin"))
        spin.launch((264, 1, 1), (32, 1, 1), 200_000, prof.buffer("again"))
    trace = prof.trace
    assert len(trace.events) == 2 * 264
    assert np.abs(trace.events.end_ns - trace.events.start_ns - 200_000).max() < 4000
    first, second = (trace.slots.launch == i for i in (0, 1))
    assert trace.slots.end_ns[first].max() <= trace.slots.start_ns[second].min() + 1000


@pytest.mark.parametrize("overflow", ["stop", "wrap"])
def test_a_full_slot_keeps_its_side_and_counts_exactly(kernel: Any, overflow: str) -> None:
    n, warps, kept = 100, 64, 16
    x = torch.zeros(16, device="cuda")
    size = abi.segment_bytes(warps, kept)
    with (
        pytest.warns(ikp.IkpWarning, match="dropped|oldest"),
        ikp.profile(backend="cuda", overflow=overflow) as prof,
    ):
        kernel("counted").launch(
            (16, 1, 1), (128, 1, 1), x, n, prof.buffer("k", size=size, regions={7: "seven"})
        )
    (launch,) = prof.trace.launches
    assert (launch.attempted, launch.kept) == (warps * (n + MORE), warps * kept)
    steps = [*range(n)][:kept] if overflow == "stop" else [*range(n)][n + MORE - kept :]
    frame = prof.trace.to_pandas()
    for _, events in frame.groupby(["block", "warp"]):
        assert events.payload[events.region == "step"].tolist() == steps


def test_off_and_none_record_nothing_and_compute_the_same(kernel: Any) -> None:
    counted = kernel("counted")
    x = torch.zeros(1, device="cuda")
    with ikp.profile(backend="cuda") as prof:
        counted.launch((1, 1, 1), (32, 1, 1), x, 5, prof.buffer("off", enabled=False))
    counted.launch((1, 1, 1), (32, 1, 1), x, 5, None)
    assert x.item() == 2 * 5 * 32
    assert len(prof.trace.events) == 0


def test_from_kernel_to_tsv(kernel: Any, tmp_path: Path) -> None:
    x = torch.zeros(2, device="cuda")
    with ikp.profile(tmp_path / "k.tsv", backend="cuda") as prof:
        kernel("counted").launch((2, 1, 1), (64, 1, 1), x, 3, prof.buffer("counted"))
    lines = (tmp_path / "k.tsv").read_text().splitlines()
    assert len(lines) == 1 + 4 * (3 + MORE)


def test_what_cannot_be_launched_is_told(kernel: Any) -> None:
    counted, x = kernel("counted"), torch.zeros(1, device="cuda")
    with pytest.raises(KernelError, match="no kernel 'missing'"):
        kernel("missing").launch((1, 1, 1), (32, 1, 1), x, 1, None)
    with pytest.raises(KernelError, match="invalid"):
        counted.launch((1, 1, 1), (2048, 1, 1), x, 1, None)
    with pytest.raises(UsageError, match="can't take"):
        counted.launch((1, 1, 1), (32, 1, 1), x, "n", None)
    with (
        pytest.warns(ikp.IkpWarning, match="nothing was recorded"),
        ikp.profile(backend="cuda", device="cpu") as prof,
        pytest.raises(BufferError, match="lies on cpu"),
    ):
        counted.launch((1, 1, 1), (32, 1, 1), x, 1, prof.buffer("cpu"))
