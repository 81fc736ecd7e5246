"""Messages between two kernels that run at once: who is late, and how long a message takes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.language.extra.cuda import globaltimer  # noqa: E402

import ikp  # noqa: E402
from ikp.analysis.arrivals import Arrivals  # noqa: E402
from ikp.edit import connect  # noqa: E402

pytestmark = pytest.mark.gpu

BLOCKS = 16
BOTH_RUN_NS = 2_000_000
"""So long after its begin a block sends: the receiver has been launched meanwhile."""
PLANTED_NS = 5_000
INTERRUPTED_NS = 20_000
"""Each message of an exchange takes so long only where the GPU was another process's meanwhile: it
goes on with one kernel after the other, and no block of the sender is late any more."""
TRIES = 5


LATE: tl.constexpr = tl.constexpr(101)
"""Numbers from here on, every second one: Triton compiles nothing anew for any of them."""


@triton.jit
def exchange(flags, begin_ns, late, late_ns, sends: tl.constexpr, prof):
    ikp.init(prof)
    me = tl.program_id(0)
    if sends:
        until = begin_ns
        if 2 * me + LATE == late:
            until += late_ns
        started = globaltimer()
        while globaltimer() - started < until:
            pass
        with ikp.range("put", me):
            tl.atomic_xchg(flags + me, 1)
    else:
        with ikp.range("wait", me):
            while tl.atomic_add(flags + me, 0) == 0:
                pass


def exchanged(late: int) -> ikp.Trace:
    """Return the trace of a sender, one block of which is late, and of a receiver."""
    streams = [torch.cuda.Stream() for _ in range(2)]
    number = 2 * late + LATE.value
    flags = torch.zeros(BLOCKS, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    with ikp.profile() as prof:
        for stream, sends, label in zip(
            streams, (True, False), ("sender", "receiver"), strict=True
        ):
            buffer = prof.buffer(label, grid=BLOCKS, num_warps=4)
            with torch.cuda.stream(stream):
                exchange[(BLOCKS,)](flags, BOTH_RUN_NS, number, PLANTED_NS, sends, buffer)
        torch.cuda.synchronize()
    return prof.trace


def uninterrupted(late: int) -> ikp.Trace:
    """Return the trace of an exchange in which no other process had the GPU, with its messages."""
    for _ in range(TRIES):
        trace = connect(exchanged(late), "put", "wait", within="trace")
        found = Arrivals.of(trace)
        delay = found.delay_ns(trace)
        print(f"block {late}: {len(found)} messages, {delay.min()} to {delay.max()} ns each")
        assert delay.min() > -100, "received before it was sent"
        if delay.min() < INTERRUPTED_NS:
            return trace
    return pytest.fail(f"each of {TRIES} exchanges was interrupted")


def test_a_planted_delay_is_laid_to_its_block() -> None:
    exchanged(0)  # compiles both
    right = 0
    for late in range(10):
        trace = uninterrupted(late)
        (one,) = [one for one in trace.explain("receiver").findings if one.id == "late-message"]
        print(one.title)
        right += f"whose block {late} comes to put" in one.title
    assert right == 10
