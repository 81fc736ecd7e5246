"""Streams of Triton kernels: interpreted, and what a compiled one publishes."""

from __future__ import annotations

import threading
import time

import pytest
import triton
import triton.language as tl

import ikp
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.segment import Spec
from ikp.targets import ptx
from tests.backends.sass import LOCAL_MEMORY, Code, compile_kernel, spec
from tests.kernels.straight import straight
from tests.segments import nbytes

PUBLISHED = 11
"""Instructions that it may cost a range to publish its start, and its count."""


@triton.jit
def waiting(flag, out, n, prof):
    ikp.init(prof)
    for i in range(n):
        with ikp.range("step", i):
            tl.store(out, i)
    with ikp.range("wait"):
        while tl.load(flag, volatile=True) == 0:
            pass
    with ikp.range(5):
        tl.store(out, 7)


@pytest.mark.interp
@pytest.mark.filterwarnings("ignore::ikp.IkpWarning")
def test_a_snapshot_of_a_kernel_that_waits_has_its_open_range() -> None:
    import torch

    out, flag = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    with ikp.profile(overflow="stream") as prof:
        buffer = prof.buffer("k", size=nbytes(1, 8), regions={5: "five"})
        thread = threading.Thread(target=lambda: waiting[(1,)](flag, out, 20, buffer))
        thread.start()
        try:
            deadline = time.monotonic() + 60
            while not (found := prof.snapshot()).warps or found.warps[0].open != "wait":
                assert time.monotonic() < deadline and thread.is_alive()
                time.sleep(0.01)
        finally:
            flag[0] = 1
            thread.join()
    (warp,) = found.warps
    assert (warp.last, warp.records, warp.finished) == ("step", 20, False)
    (launch,) = prof.trace.launches
    assert launch.attempted == 22 and launch.kept >= 8
    names = [prof.trace.regions[region].name for region in prof.trace.events.region]
    assert names[-2:] == ["wait", "five"]
    assert out.item() == 7


def code(on: Spec | None, records: int = 8, kind: str = "range") -> Code:
    constants = {"STORES": 8, "RECORDS": records, "KIND": kind}
    return compile_kernel(straight, {"x": "*i32", "p": "i32"}, on, constants)


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["range", "payload", "functional", "instant", "run-time id"])
def test_what_a_compiled_kernel_publishes(kind: str) -> None:
    stream, ring = (
        code(spec(mode), kind=kind) for mode in (OverflowMode.STREAM, OverflowMode.WRAP)
    )
    opens = 1 + (0 if kind == "instant" else 8)  # the first is of the token
    volatile = "st.volatile.global"
    assert stream.ptx.count(f"{volatile}.v2.b32") == 8, "the count behind each record"
    assert stream.ptx.count(f"{volatile}.v4.b32") == opens, "each range that opens"
    assert volatile not in ring.ptx
    assert stream.ptx.count(ptx.STORE_MARK) == ring.ptx.count(ptx.STORE_MARK) == 8
    assert stream.clock_reads == ring.clock_reads + 1, "the token, which nothing else uses"
    assert stream.count(LOCAL_MEMORY) == {}
    one = [code(spec(mode), 1, kind).size for mode in (OverflowMode.STREAM, OverflowMode.WRAP)]
    assert (stream.size - one[0]) - (ring.size - one[1]) <= 7 * PUBLISHED


@pytest.mark.compiled
def test_64_bits_of_a_start_are_published() -> None:
    wide = code(spec(OverflowMode.STREAM, ClockKind.CYCLES64))
    assert wide.ptx.count("st.volatile.global.v4.b32") == 9
    assert wide.ptx.count("mov.b64 {l, h}, ") == 9
