"""Pinned memory of the host on a GPU: the driver says so, and the verdict names it."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

import ikp  # noqa: E402
from ikp.core.run_figures import FAR  # noqa: E402
from ikp.driver import cuda_memory  # noqa: E402

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
    whose = {offset: (kind, base) for offset, (kind, base, _) in json.loads(said).items()}
    assert whose == ({"0": ("host", x.data_ptr())} if pinned else {})
    found = [one.id for one in trace.explain().findings]
    assert ("far-memory" in found[:1]) == pinned


NBYTES = 1 << 20
DEVICE_MAPPED = 2


def driver(function: str, *arguments: Any) -> None:
    assert getattr(ctypes.CDLL("libcuda.so.1"), function)(*arguments) == 0, function


@pytest.fixture
def pointers() -> Iterator[dict[str, int]]:
    """Addresses in memory of each kind, by what it is."""
    device, registered = torch.empty(NBYTES, device="cuda"), np.zeros(NBYTES, np.uint8)
    pinned = torch.empty(NBYTES).pin_memory()
    managed, mapped = ctypes.c_uint64(), ctypes.c_void_p()
    driver("cuMemAllocManaged", ctypes.byref(managed), ctypes.c_size_t(NBYTES), 1)
    driver("cuMemHostAlloc", ctypes.byref(mapped), ctypes.c_size_t(NBYTES), DEVICE_MAPPED)
    at = ctypes.c_void_p(registered.ctypes.data)
    driver("cuMemHostRegister_v2", at, ctypes.c_size_t(NBYTES), DEVICE_MAPPED)
    view = ctypes.c_uint64()
    driver("cuMemHostGetDevicePointer_v2", ctypes.byref(view), mapped, 0)
    pool = cuda_memory.allocate(NBYTES)
    yield {
        "device": device.data_ptr(),
        "inside of device": device[100:].data_ptr(),
        "by the driver": pool,
        "pinned": pinned.data_ptr(),
        "registered": registered.ctypes.data,
        "mapped": mapped.value or 0,
        "mapped, as kernels see it": view.value,
        "managed": managed.value,
        "no pointer": 12345,
    }
    cuda_memory.free(pool)
    driver("cuMemHostUnregister", at)
    driver("cuMemFreeHost", mapped)
    driver("cuMemFree_v2", managed)


def test_each_kind_of_memory_is_known(pointers: dict[str, int]) -> None:
    found = {name: cuda_memory.far_memory(at) for name, at in pointers.items()}
    kinds = {name: each[0] for name, each in found.items() if each is not None}
    host = ("pinned", "registered", "mapped", "mapped, as kernels see it")
    assert kinds == {**dict.fromkeys(host, "host"), "managed": "managed"}
    for name, each in found.items():
        if each is not None:
            assert each[1] <= pointers[name] < each[1] + each[2] and each[2] >= NBYTES


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs in one host")
def test_memory_of_another_gpu_is_known() -> None:
    other = torch.empty(NBYTES, device="cuda:1")
    with torch.cuda.device(0):
        found = cuda_memory.far_memory(other.data_ptr())
    with torch.cuda.device(1):
        assert cuda_memory.far_memory(other.data_ptr()) is None
    assert found is not None and found[0] == "another GPU"
