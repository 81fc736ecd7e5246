"""Adds up squares of rows that stream in from memory: with a general power, or a product."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

import ikp
from tests.kernels.planted.case import SMS, Case, Take
from tests.kernels.planted.ring import barriers, load_tile, tiles

LANGUAGE, EXPECTED = "Gluon", "slow consumer"
BM, BN, STAGES, STEPS = 64, 128, 8, 64


@gluon.jit
def loads(rows, x, full, empty, STEPS: gl.constexpr):
    """Keep the ring full: one warp, a tile per step."""
    ikp.role("loads")
    BM: gl.constexpr = rows.block_type.shape[0]
    BN: gl.constexpr = rows.block_type.shape[1]
    STAGES: gl.constexpr = x.shape[0]
    for step in range(STEPS):
        at = step % STAGES
        with ikp.range("empty", step):
            mbarrier.wait(empty.index(at), ((step // STAGES) & 1) ^ 1)
        with ikp.range("copy", step):
            mbarrier.expect(full.index(at), rows.block_type.nbytes)
            load_tile(rows, [gl.program_id(0) * BM, step * BN], full.index(at), x.index(at))


@gluon.jit
def adds(out, power, x, full, empty, STEPS: gl.constexpr, GENERAL: gl.constexpr):
    """Add up what arrives, then write the sum of each row."""
    ikp.role("adds")
    STAGES: gl.constexpr = x.shape[0]
    BM: gl.constexpr = x.shape[1]
    BN: gl.constexpr = x.shape[2]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    total = gl.zeros((BM, BN), gl.float32, layout)
    for step in range(STEPS):
        at = step % STAGES
        with ikp.range("full", step):
            mbarrier.wait(full.index(at), (step // STAGES) & 1)
        with ikp.range("add", step):
            values = x.index(at).load(layout).to(gl.float32)
            if GENERAL:
                total += gl.exp2(power * gl.log2(values))
            else:
                total += values * values
        mbarrier.arrive(empty.index(at), count=1)
    with ikp.range("store"):
        at = gl.program_id(0) * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
        gl.store(out + at, gl.sum(total, 1))


@gluon.jit
def norms(rows, out, power, prof, STAGES: gl.constexpr, STEPS: gl.constexpr, GENERAL: gl.constexpr):
    """Write the sum of squares of each row. Grid: (rows / BM,)."""
    ikp.init(prof)
    BM: gl.constexpr = rows.block_type.shape[0]
    BN: gl.constexpr = rows.block_type.shape[1]
    x = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BN], rows.layout)
    full = barriers(STAGES)
    empty = barriers(STAGES)
    gl.warp_specialize(
        [
            (adds, (out, power, x, full, empty, STEPS, GENERAL)),
            (loads, (rows, x, full, empty, STEPS)),
        ],
        [1],
        [40],
    )


def prepare(faulty: bool) -> Case:
    x = torch.rand(SMS * BM, STEPS * BN, device="cuda").half() + 0.125
    rows = tiles(x, [BM, BN])
    out = torch.empty(SMS * BM, device="cuda")

    def run(take: Take) -> None:
        norms[(SMS,)](rows, out, 2.0, take(), STAGES, STEPS, faulty, num_warps=4)

    expected = x.double().square().sum(1)
    return Case(run, out, expected, {"warps": [0, 4, 5, 6, 7], "blocks": range(0, SMS, 16)})
