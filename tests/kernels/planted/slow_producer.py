"""Adds up a function of paged rows: the producer finds each page through several levels of a
table, or in one that was flattened before.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

import ikp
from tests.kernels.planted.case import SMS, Case, Take
from tests.kernels.planted.ring import barriers, load_tile, tiles

LANGUAGE, EXPECTED = "Gluon", "slow producer"
BM, BN, STAGES, PAGES, LEVELS, GROUPS = 64, 128, 4, 64, 8, 8


@gluon.jit
def loads(rows, table, row, x, full, empty, PAGES: gl.constexpr, LEVELS: gl.constexpr):
    """Keep the ring full: one warp, a tile per page."""
    ikp.role("loads")
    BN: gl.constexpr = rows.block_type.shape[1]
    STAGES: gl.constexpr = x.shape[0]
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
            load_tile(rows, [row, page * BN], full.index(at), x.index(at))


@gluon.jit
def adds(out, x, full, empty, PAGES: gl.constexpr):
    """Add up what arrives, then write the sum of each row."""
    ikp.role("adds")
    STAGES: gl.constexpr = x.shape[0]
    BM: gl.constexpr = x.shape[1]
    BN: gl.constexpr = x.shape[2]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    total = gl.zeros((BM, BN), gl.float32, layout)
    for step in range(PAGES):
        at = step % STAGES
        with ikp.range("full", step):
            mbarrier.wait(full.index(at), (step // STAGES) & 1)
        with ikp.range("add", step):
            values = x.index(at).load(layout).to(gl.float32)
            total += gl.exp2(-gl.exp2(values))
        mbarrier.arrive(empty.index(at), count=1)
    with ikp.range("store"):
        at = gl.program_id(0) * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
        gl.store(out + at, gl.sum(total, 1))


@gluon.jit
def paged_sums(
    rows, table, out, prof, STAGES: gl.constexpr, PAGES: gl.constexpr, LEVELS: gl.constexpr
):
    """Write a sum for each row of this block's tile of rows. Grid: any."""
    ikp.init(prof)
    BM: gl.constexpr = rows.block_type.shape[0]
    BN: gl.constexpr = rows.block_type.shape[1]
    x = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BN], rows.layout)
    full = barriers(STAGES)
    empty = barriers(STAGES)
    row = gl.program_id(0) % 8 * BM
    gl.warp_specialize(
        [
            (adds, (out, x, full, empty, PAGES)),
            (loads, (rows, table, row, x, full, empty, PAGES, LEVELS)),
        ],
        [1],
        [40],
    )


def prepare(faulty: bool) -> Case:
    torch.manual_seed(0)
    x = torch.rand(GROUPS * BM, PAGES * BN, device="cuda").half()
    rows = tiles(x, [BM, BN])
    links = torch.randperm(PAGES, device="cuda")
    flat = torch.arange(PAGES, device="cuda")
    for _ in range(LEVELS):
        flat = links[flat]  # a permutation: each page is added once
    table, levels = (links, LEVELS) if faulty else (flat, 1)
    table = table.int()
    out = torch.empty(SMS * BM, device="cuda")
    sums = torch.exp2(-torch.exp2(x.double())).sum(1).view(GROUPS, BM)
    expected = sums[torch.arange(SMS, device="cuda") % GROUPS].view(-1)

    def run(take: Take) -> None:
        paged_sums[(SMS,)](rows, table, out, take(), STAGES, PAGES, levels, num_warps=4)

    return Case(run, out, expected, {"warps": [0, 4, 5, 6, 7], "blocks": range(0, SMS, 16)})
