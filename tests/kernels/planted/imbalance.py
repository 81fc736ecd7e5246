"""Sums of slices of very different lengths: dealt out as they come, or so that each block has
as much to do.
"""

import torch
import triton
import triton.language as tl

import ikp
from tests.kernels.planted.case import DEVICE, ON_GPU, SMS, Case, Take
from tests.kernels.planted.work import relax, relaxed

LANGUAGE, EXPECTED = "Triton", "load imbalance"
ROWS, TILE, ROUNDS = (16, 4096, 64) if ON_GPU else (4, 32, 2)


@triton.jit
def sums(
    x,
    starts,
    lengths,
    order,
    out,
    prof,
    ROWS: tl.constexpr,
    ROUNDS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Write the sum of relax(x) over each slice; a block takes ROWS of them, as ``order`` says."""
    ikp.init(prof)
    for i in range(ROWS):
        row = tl.load(order + tl.program_id(0) * ROWS + i)
        start = tl.load(starts + row)
        length = tl.load(lengths + row)
        with ikp.range("row", length):
            total = tl.zeros((TILE,), tl.float32)
            for at in range(0, length, TILE):
                total += relax(tl.load(x + start + at + tl.arange(0, TILE)), ROUNDS)
            tl.store(out + row, tl.sum(total, 0))


def prepare(faulty: bool) -> Case:
    rows = torch.arange(SMS * ROWS)
    pool = 1024 * TILE
    x = torch.rand(pool, device=DEVICE)
    lengths = TILE * (1 + rows.flip(0) * 30 // len(rows))
    starts = (rows * 7919 * TILE // 8) % (pool - 32 * TILE)
    dealt = rows.view(ROWS, SMS).clone()
    dealt[1::2] = dealt[1::2].flip(1)  # there and back: each block has long ones and short ones
    order = rows if faulty else dealt.t().reshape(-1)
    ends = torch.nn.functional.pad(relaxed(x, ROUNDS).cumsum(0), (1, 0)).cpu()
    expected = (ends[starts + lengths] - ends[starts]).to(DEVICE)
    starts, lengths, order = (each.int().to(DEVICE) for each in (starts, lengths, order))
    out = torch.empty(len(rows), device=DEVICE)

    def run(take: Take) -> None:
        operands = (x, starts, lengths, order, out, take())
        sums[(SMS,)](*operands, ROWS=ROWS, ROUNDS=ROUNDS, TILE=TILE, num_warps=8)

    return Case(run, out, expected, {"warps": [0]})
