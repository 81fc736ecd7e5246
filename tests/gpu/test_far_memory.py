"""Pinned memory of the host on a GPU: the driver says so, and the verdict names it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

import ikp  # noqa: E402
from ikp.core.code_facts import FAR  # noqa: E402

pytestmark = pytest.mark.gpu
SIZE = 1 << 22


@triton.jit
def scaled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("pinned", [True, False])
def test_loads_from_pinned_memory_are_named(*, pinned: bool) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("machine code is recorded on sm_90 alone")
    x = torch.randn(SIZE).pin_memory() if pinned else torch.randn(SIZE, device="cuda")
    out = torch.empty(SIZE, device="cuda")
    marked = ikp.instrument(scaled, detail="ops", level="machine")
    with ikp.profile() as prof:
        for _ in range(4):
            marked[(SIZE // 1024,)](x, out, SIZE, BLOCK=1024)
            torch.cuda.synchronize()
    assert torch.equal(out.cpu(), 2 * x.cpu())
    trace = prof.trace
    (said,) = (text for key, text in trace.provenance.items() if key.startswith(FAR))
    assert ("host" in said) == pinned
    found = [one.id for one in trace.explain().findings]
    assert ("far-memory" in found[:1]) == pinned
