"""Reduces logits of a vocabulary: the warps that multiply finish a tile before they start
the next one, or two warpgroups take turns, so that one multiplies while the other finishes.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

import ikp
from tests.kernels.planted.case import SMS, Case, Take
from tests.kernels.planted.ring import barriers, load_tile, tiles

LANGUAGE, EXPECTED = "Gluon", "epilogue does not overlap"
BM, BN, BK, DEPTH, STAGES, ROWS = 64, 256, 64, 256, 4, 2048


@gluon.jit
def loads(rows, words, x, w, ready, full, empty, ROWS: gl.constexpr):
    """Load this block's words once, and keep the ring of rows full: one warp."""
    ikp.role("loads")
    STAGES: gl.constexpr = x.shape[0]
    STEPS: gl.constexpr = w.shape[0]
    BM: gl.constexpr = x.shape[1]
    BK: gl.constexpr = x.shape[2]
    BN: gl.constexpr = w.shape[1]
    mbarrier.expect(ready.index(0), STEPS * words.block_type.nbytes)
    for k in gl.static_range(STEPS):
        load_tile(words, [gl.program_id(0) * BN, k * BK], ready.index(0), w.index(k))
    for step in range(ROWS // BM * STEPS):
        at = step % STAGES
        with ikp.range("empty", step):
            mbarrier.wait(empty.index(at), ((step // STAGES) & 1) ^ 1)
        with ikp.range("copy", step):
            mbarrier.expect(full.index(at), rows.block_type.nbytes)
            load_tile(rows, [step // STEPS * BM, step % STEPS * BK], full.index(at), x.index(at))


@gluon.jit
def logits(
    out, x, w, ready, full, empty, turn,
    ROWS: gl.constexpr, FIRST: gl.constexpr, TEAMS: gl.constexpr,
):  # fmt: skip
    """Multiply and finish every TEAMS-th tile of rows."""
    ikp.role("logits")
    STAGES: gl.constexpr = x.shape[0]
    STEPS: gl.constexpr = w.shape[0]
    BM: gl.constexpr = x.shape[1]
    BN: gl.constexpr = w.shape[1]
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    mbarrier.wait(ready.index(0), 0)
    for tile in range(FIRST, ROWS // BM, TEAMS):
        if TEAMS > 1:
            with ikp.range("turn", tile):
                mbarrier.wait(turn.index(FIRST), ((tile // TEAMS) & 1) ^ (1 - FIRST))
        acc = gl.zeros((BM, BN), gl.float32, mma)
        for k in range(STEPS):
            step = tile * STEPS + k
            at = step % STAGES
            with ikp.range("full", step):
                mbarrier.wait(full.index(at), (step // STAGES) & 1)
            with ikp.range("multiply", step):
                acc = hopper.warpgroup_mma(
                    x.index(at), w.index(k).permute((1, 0)), acc, is_async=True
                )
                acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(empty.index(at), count=1)
        if TEAMS > 1:
            mbarrier.arrive(turn.index(1 - FIRST), count=1)
        with ikp.range("reduce", tile):
            sums = gl.sum(gl.exp2(acc), 1)
            row = tile * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, mma))
            gl.store(out + gl.program_id(0) * ROWS + row, sums)


@gluon.jit
def vocabulary(
    rows, words, out, prof,
    STAGES: gl.constexpr, ROWS: gl.constexpr, DEPTH: gl.constexpr, TEAMS: gl.constexpr,
):  # fmt: skip
    """Write the sum over this block's words of exp2(logits), for each row."""
    ikp.init(prof)
    BM: gl.constexpr = rows.block_type.shape[0]
    BK: gl.constexpr = rows.block_type.shape[1]
    BN: gl.constexpr = words.block_type.shape[0]
    x = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], rows.layout)
    w = gl.allocate_shared_memory(gl.float16, [DEPTH // BK, BN, BK], words.layout)
    ready = barriers(1)
    full = barriers(STAGES)
    empty = barriers(STAGES)
    turn = barriers(2)
    if TEAMS == 1:
        gl.warp_specialize(
            [
                (logits, (out, x, w, ready, full, empty, turn, ROWS, 0, 1)),
                (loads, (rows, words, x, w, ready, full, empty, ROWS)),
            ],
            [1],
            [40],
        )
    else:
        gl.warp_specialize(
            [
                (logits, (out, x, w, ready, full, empty, turn, ROWS, 0, 2)),
                (logits, (out, x, w, ready, full, empty, turn, ROWS, 1, 2)),
                (loads, (rows, words, x, w, ready, full, empty, ROWS)),
            ],
            [4, 1],
            [216, 40],
        )


def prepare(faulty: bool) -> Case:
    torch.manual_seed(0)
    x = (torch.randn(ROWS, DEPTH, device="cuda") / 8).half()
    w = (torch.randn(SMS * BN, DEPTH, device="cuda") / 8).half()
    rows, words = tiles(x, [BM, BK]), tiles(w, [BN, BK])
    out = torch.empty(SMS, ROWS, device="cuda")
    products = (w.float() @ x.float().t()).view(SMS, BN, ROWS)
    expected = torch.exp2(products).sum(1)
    teams = 1 if faulty else 2

    def run(take: Take) -> None:
        vocabulary[(SMS,)](rows, words, out, take(), STAGES, ROWS, DEPTH, teams, num_warps=4)

    warps = [0, 4, 5, 6, 7] if faulty else [0, 4, 8, 9, 10, 11]
    chosen = {"warps": warps, "blocks": range(0, SMS, 33)}
    return Case(run, out, expected, chosen, tolerance=5e-3)
