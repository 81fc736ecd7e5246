"""Adds up exponentials of scores: each product is waited for before the exponentials of it, or is
in flight while those of the one before are computed.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

import ikp
from tests.kernels.planted.case import SMS, Case, Take
from tests.kernels.planted.ring import barriers, load_tile, tiles

LANGUAGE, EXPECTED = "Gluon", "serialised WGMMA"
BM, BN, DEPTH, STAGES, STEPS, GROUPS = 128, 64, 128, 4, 64, 8


@gluon.jit
def loads(queries, keys, row, q, k, ready, full, empty, STEPS: gl.constexpr):
    """Load the queries once, and keep the ring of keys full: one warp."""
    ikp.role("loads")
    BN: gl.constexpr = k.shape[1]
    STAGES: gl.constexpr = k.shape[0]
    mbarrier.expect(ready.index(0), queries.block_type.nbytes)
    load_tile(queries, [row, 0], ready.index(0), q)
    for step in range(STEPS):
        at = step % STAGES
        with ikp.range("empty", step):
            mbarrier.wait(empty.index(at), ((step // STAGES) & 1) ^ 1)
        with ikp.range("copy", step):
            mbarrier.expect(full.index(at), keys.block_type.nbytes)
            load_tile(keys, [step * BN, 0], full.index(at), k.index(at))


@gluon.jit
def scores(out, q, k, ready, full, empty, STEPS: gl.constexpr, AHEAD: gl.constexpr):
    """Multiply each tile of keys as it arrives, and add up the exponentials."""
    ikp.role("scores")
    STAGES: gl.constexpr = k.shape[0]
    BM: gl.constexpr = q.shape[0]
    BN: gl.constexpr = k.shape[1]
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    total = gl.zeros((BM,), gl.float32, gl.SliceLayout(1, mma))
    score = gl.zeros((BM, BN), gl.float32, mma)
    mbarrier.wait(ready.index(0), 0)
    for step in range(STEPS):
        at = step % STAGES
        with ikp.range("full", step):
            mbarrier.wait(full.index(at), (step // STAGES) & 1)
        with ikp.range("multiply", step):
            product = hopper.warpgroup_mma(
                q, k.index(at).permute((1, 0)), score, use_acc=False, is_async=True
            )
            if not AHEAD:
                score = hopper.warpgroup_mma_wait(0, deps=(product,))
        if AHEAD:
            if step > 0:
                with ikp.range("exponentials", step - 1):
                    total += gl.sum(gl.exp2(score), 1)
            with ikp.range("finish", step):
                score = hopper.warpgroup_mma_wait(0, deps=(product,))
        else:
            with ikp.range("exponentials", step):
                total += gl.sum(gl.exp2(score), 1)
        mbarrier.arrive(empty.index(at), count=1)
    if AHEAD:
        with ikp.range("exponentials", STEPS - 1):
            total += gl.sum(gl.exp2(score), 1)
    with ikp.range("store"):
        at = gl.program_id(0) * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, mma))
        gl.store(out + at, total)


@gluon.jit
def normalisers(
    queries, keys, out, prof, STAGES: gl.constexpr, STEPS: gl.constexpr, AHEAD: gl.constexpr
):
    """Write the sum of exp2(queries @ keys.T) over the keys. Grid: any."""
    ikp.init(prof)
    BM: gl.constexpr = queries.block_type.shape[0]
    BN: gl.constexpr = keys.block_type.shape[0]
    DEPTH: gl.constexpr = keys.block_type.shape[1]
    q = gl.allocate_shared_memory(gl.float16, [BM, DEPTH], queries.layout)
    k = gl.allocate_shared_memory(gl.float16, [STAGES, BN, DEPTH], keys.layout)
    ready = barriers(1)
    full = barriers(STAGES)
    empty = barriers(STAGES)
    row = gl.program_id(0) % 8 * BM
    gl.warp_specialize(
        [
            (scores, (out, q, k, ready, full, empty, STEPS, AHEAD)),
            (loads, (queries, keys, row, q, k, ready, full, empty, STEPS)),
        ],
        [1],
        [40],
    )


def prepare(faulty: bool) -> Case:
    torch.manual_seed(0)
    q = (torch.randn(GROUPS * BM, DEPTH, device="cuda") / 8).half()
    k = (torch.randn(STEPS * BN, DEPTH, device="cuda") / 8).half()
    queries, keys = tiles(q, [BM, DEPTH]), tiles(k, [BN, DEPTH])
    out = torch.empty(SMS * BM, device="cuda")
    sums = torch.exp2(q.double() @ k.double().t()).sum(1).view(GROUPS, BM)
    expected = sums[torch.arange(SMS, device="cuda") % GROUPS].view(-1)

    def run(take: Take) -> None:
        normalisers[(SMS,)](queries, keys, out, take(), STAGES, STEPS, not faulty, num_warps=4)

    return Case(
        run, out, expected, {"warps": [0, 4, 5, 6, 7], "blocks": range(0, SMS, 16)}, tolerance=5e-3
    )
