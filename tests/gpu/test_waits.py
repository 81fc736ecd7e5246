"""What a wait is shown to take, on a GPU, where it is known: one warp of a block is late."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

import ikp  # noqa: E402
from ikp.sass.assembly.chips import CHIPS, UNTESTED  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*is not recorded.*", "ignore:.*its marks are in its PTX.*"),
]

SKEW = 20_000
"""Cycles by which the late warp spins."""
SLACK = 300
"""How much sooner or later warps of a block begin."""
LATEST_NS = 60
"""A barrier's own time, what a record takes before it, and what two warps' clocks are apart."""
WARPS, BLOCKS = 4, 264
LATE = tl.constexpr(
    """{
    .reg .pred p; .reg .u32 t, a, b;
    mov.u32 t, %tid.x; setp.ge.u32 p, t, 32; @p bra DONE;
    mov.u32 a, %clock;
    LOOP: mov.u32 b, %clock; sub.u32 b, b, a; setp.lt.u32 p, b, 20000; @p bra LOOP;
    DONE: mov.u32 $0, $1;
    }"""
)
KINDS = {
    "all": "bar.sync 0; mov.u32 $0, $1;",
    "named": "bar.sync 3, 128; mov.u32 $0, $1;",
    "with arithmetic behind": "bar.sync 0; mad.lo.u32 $0, $1, $1, $1; xor.b32 $0, $0, 5;",
    "result": """{.reg .pred p, q; setp.ne.u32 p, $1, 12345; bar.red.or.pred q, 0, p;
    selp.u32 $0, $1, 7, q;}""",
    "count": "{.reg .pred p; setp.ne.u32 p, $1, 12345; bar.red.popc.u32 $0, 0, p;}",
}


@triton.jit
def waits(out, N: tl.constexpr, WAIT: tl.constexpr):
    at = tl.arange(0, N)
    v = at * 3
    v = tl.inline_asm_elementwise(LATE, "=r,r", [v], dtype=tl.int32, is_pure=False, pack=1)
    v = tl.inline_asm_elementwise(WAIT, "=r,r", [v], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out + tl.program_id(0) * N + at, v)


@triton.jit
def in_ranges(out, prof, N: tl.constexpr, WAIT: tl.constexpr):
    ikp.init(prof)
    at = tl.arange(0, N)
    v = at * 3
    with ikp.range("late"):
        v = tl.inline_asm_elementwise(LATE, "=r,r", [v], dtype=tl.int32, is_pure=False, pack=1)
    with ikp.range("barrier"):
        v = tl.inline_asm_elementwise(WAIT, "=r,r", [v], dtype=tl.int32, is_pure=False, pack=1)
    with ikp.range("store"):
        tl.store(out + tl.program_id(0) * N + at, v)


def check(trace: ikp.Trace, what: str) -> None:
    """Hold each wait against its end: the late warp reaches the barrier, and all go on."""
    regions = [at for at, each in enumerate(trace.regions) if each.name.startswith("barrier")]
    events, slots = trace.events, trace.slots
    rows = np.flatnonzero(np.isin(events.region, regions))
    block, warp = slots.block[events.slot[rows]], slots.warp[events.slot[rows]]
    assert sorted(zip(block.tolist(), warp.tolist(), strict=True)) == [
        (block, warp) for block in range(BLOCKS) for warp in range(WARPS)
    ]
    came = np.zeros(BLOCKS, np.int64)  # ns since 1970: more than a float holds
    came[block[warp == 0]] = events.start_ns[rows][warp == 0]
    others = rows[warp != 0]
    after = events.end_ns[others] - came[block[warp != 0]]
    ticks = np.asarray(events.ticks)[others]
    least, usual, most = np.quantile(ticks, [0, 0.5, 1])
    found = (
        f"{what}: waits of {least:.0f}, {usual:.0f}, {most:.0f} cycles, over {after.min():.0f} to "
        f"{after.max():.0f} ns after the late warp came"
    )
    print(found)
    assert abs(usual - SKEW) < SLACK, found
    assert after.min() >= 0 and after.max() < LATEST_NS, found


@pytest.fixture(autouse=True)
def known_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "sm_{}{}".format(*torch.cuda.get_device_capability())
    if name not in {chip.name for chip in CHIPS}:
        pytest.skip(f"records in machine code are not known for {name}")
    monkeypatch.setenv(UNTESTED, "1")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("level", "detail"), [("machine", "waits"), ("machine", "ops"), ("ptx", "ops")]
)
def test_a_barrier_in_a_kernel_that_nobody_edited(kind: str, level: str, detail: str) -> None:
    out = torch.zeros(BLOCKS * 128, device="cuda", dtype=torch.int32)
    marked = ikp.instrument(waits, level=level, detail=detail, sample=1)
    with ikp.profile() as prof:
        marked[(BLOCKS,)](out, N=128, WAIT=KINDS[kind], num_warps=WARPS)
    check(prof.trace, f"{level} {detail} {kind}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", [True, False])
def test_a_barrier_in_a_range_that_is_written_by_hand(kind: str, schedule: bool) -> None:
    out = torch.zeros(BLOCKS * 128, device="cuda", dtype=torch.int32)
    with ikp.profile(schedule=schedule) as prof:
        in_ranges[(BLOCKS,)](out, prof.buffer("k"), N=128, WAIT=KINDS[kind], num_warps=WARPS)
    check(prof.trace, f"by hand {schedule=} {kind}")
