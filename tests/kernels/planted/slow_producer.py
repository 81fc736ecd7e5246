"""Multiplies paged rows by a matrix: the producer finds each page through several levels of a
table, or in one that was flattened before. What the consumer does, tensor cores do: repaired, it is
at their rate, and has no fault of its own.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

import ikp
from tests.kernels.planted.case import SMS, Case, Take
from tests.kernels.planted.ring import barriers, load_tile, tiles

LANGUAGE, EXPECTED = "Gluon", "slow producer"
BM, BK, BN, STAGES, PAGES, LEVELS, GROUPS = 64, 128, 256, 4, 64, 8, 8


@gluon.jit
def loads(
    rows, words, table, row, x, w, ready, full, empty, PAGES: gl.constexpr, LEVELS: gl.constexpr
):
    """Load the matrix once, and keep the ring full: one warp, a tile per page."""
    ikp.role("loads")
    BK: gl.constexpr = rows.block_type.shape[1]
    STAGES: gl.constexpr = x.shape[0]
    mbarrier.expect(ready.index(0), words.block_type.nbytes)
    load_tile(words, [0, 0], ready.index(0), w)
    for step in range(PAGES):
        at = step % STAGES
        with ikp.range("look up", step):
            page = step
            for _ in gl.static_range(LEVELS):
                page = gl.load(table + page, cache_modifier=".cg")
        with ikp.range("empty", step):
            mbarrier.wait(empty.index(at), ((step // STAGES) & 1) ^ 1)
        with ikp.range("copy", step):
            mbarrier.expect(full.index(at), rows.block_type.nbytes)
            load_tile(rows, [row, page * BK], full.index(at), x.index(at))


@gluon.jit
def products(out, x, w, ready, full, empty, PAGES: gl.constexpr):
    """Multiply what arrives and add it up, then write the sum of each row."""
    ikp.role("products")
    STAGES: gl.constexpr = x.shape[0]
    BM: gl.constexpr = x.shape[1]
    BN: gl.constexpr = w.shape[0]
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, mma)
    mbarrier.wait(ready.index(0), 0)
    for step in range(PAGES):
        at = step % STAGES
        with ikp.range("full", step):
            mbarrier.wait(full.index(at), (step // STAGES) & 1)
        with ikp.range("multiply", step):
            acc = hopper.warpgroup_mma(x.index(at), w.permute((1, 0)), acc, is_async=True)
            acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index(at), count=1)
    with ikp.range("store"):
        at = gl.program_id(0) * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, mma))
        gl.store(out + at, gl.sum(acc, 1))


@gluon.jit
def paged(
    rows, words, table, out, prof, STAGES: gl.constexpr, PAGES: gl.constexpr, LEVELS: gl.constexpr
):
    """Write a sum for each row of this block's tile of rows. Grid: any."""
    ikp.init(prof)
    BM: gl.constexpr = rows.block_type.shape[0]
    BK: gl.constexpr = rows.block_type.shape[1]
    BN: gl.constexpr = words.block_type.shape[0]
    x = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], rows.layout)
    w = gl.allocate_shared_memory(gl.float16, [BN, BK], words.layout)
    ready = barriers(1)
    full = barriers(STAGES)
    empty = barriers(STAGES)
    row = gl.program_id(0) % 8 * BM
    gl.warp_specialize(
        [
            (products, (out, x, w, ready, full, empty, PAGES)),
            (loads, (rows, words, table, row, x, w, ready, full, empty, PAGES, LEVELS)),
        ],
        [1],
        [40],
    )


def prepare(faulty: bool) -> Case:
    torch.manual_seed(0)
    x = torch.rand(GROUPS * BM, PAGES * BK, device="cuda").half()
    w = torch.rand(BN, BK, device="cuda").half()
    rows, words = tiles(x, [BM, BK]), tiles(w, [BN, BK])
    links = torch.randperm(PAGES, device="cuda")
    flat = torch.arange(PAGES, device="cuda")
    for _ in range(LEVELS):
        flat = links[flat]  # a permutation: each page is added once
    table, levels = (links, LEVELS) if faulty else (flat, 1)
    table = table.int()
    out = torch.empty(SMS * BM, device="cuda")
    pages = x.double().view(GROUPS * BM, PAGES, BK).sum(1)
    sums = (pages @ w.double().sum(0)).view(GROUPS, BM)
    expected = sums[torch.arange(SMS, device="cuda") % GROUPS].view(-1)

    def run(take: Take) -> None:
        paged[(SMS,)](rows, words, table, out, take(), STAGES, PAGES, levels, num_warps=4)

    return Case(run, out, expected, {"warps": [0, 4, 5, 6, 7], "blocks": range(0, SMS, 16)})
