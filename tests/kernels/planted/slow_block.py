"""One block does what belongs to all, after its own share; or each block does a piece of it."""

import torch
import triton
import triton.language as tl

import ikp
from tests.kernels.planted.case import DEVICE, ON_GPU, SMS, Case, Take
from tests.kernels.planted.work import relax, relaxed

LANGUAGE, EXPECTED = "Triton", "slow block"
TURNS = 16
TILE, PIECE, ROUNDS, WARPS = (16384, 1024, 128, 32) if ON_GPU else (64, 16, 4, 4)


@triton.jit
def update(
    x,
    out,
    shared,
    kept,
    prof,
    ALONE: tl.constexpr,
    TURNS: tl.constexpr,
    ROUNDS: tl.constexpr,
    TILE: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Write out = relax(x), and kept = relax(shared), which has a piece for each block."""
    ikp.init(prof)
    block = tl.program_id(0)
    for turn in range(TURNS):
        with ikp.range("tile", turn):
            at = (block * TURNS + turn) * TILE + tl.arange(0, TILE)
            tl.store(out + at, relax(tl.load(x + at), ROUNDS))
    if ALONE:
        first = 0
        last = tl.where(block == 0, tl.num_programs(0), 0)
    else:
        first = block
        last = block + 1
    for piece in range(first, last):
        with ikp.range("piece", piece):
            at = piece * PIECE + tl.arange(0, PIECE)
            tl.store(kept + at, relax(tl.load(shared + at), ROUNDS))


def prepare(faulty: bool) -> Case:
    count, shared = SMS * TURNS * TILE, SMS * PIECE
    x = torch.rand(count + shared, device=DEVICE)
    out = torch.empty_like(x)

    def run(take: Take) -> None:
        operands = (x, out, x[count:], out[count:], take())
        sizes = {"TURNS": TURNS, "ROUNDS": ROUNDS, "TILE": TILE, "PIECE": PIECE}
        update[(SMS,)](*operands, ALONE=faulty, **sizes, num_warps=WARPS)

    return Case(run, out, relaxed(x, ROUNDS), {"warps": [0]})
