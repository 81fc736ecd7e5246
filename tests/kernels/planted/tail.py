"""Each block takes the same number of neighbouring tiles: a few blocks more than there are SMs."""

import torch
import triton
import triton.language as tl

import ikp
from tests.kernels.planted.case import DEVICE, ON_GPU, SMS, Case, Take
from tests.kernels.planted.work import relax, relaxed

LANGUAGE, EXPECTED = "Triton", "tail"
TURNS = 16
TILE, ROUNDS, WARPS = (16384, 128, 32) if ON_GPU else (64, 4, 4)


@triton.jit
def smooth(
    x, out, tiles, turns, prof, SPREAD: tl.constexpr, ROUNDS: tl.constexpr, TILE: tl.constexpr
):
    """Write out = relax(x), tile by tile: neighbouring ones, or every so many-th."""
    ikp.init(prof)
    for turn in range(turns):
        if SPREAD:
            tile = tl.program_id(0) + turn * tl.num_programs(0)
        else:
            tile = tl.program_id(0) * turns + turn
        if tile < tiles:
            with ikp.range("tile", tile):
                at = tile * TILE + tl.arange(0, TILE)
                values = relax(tl.load(x + at), ROUNDS)
                tl.store(out + at, values)


def prepare(faulty: bool) -> Case:
    blocks = SMS + 4
    tiles = blocks * TURNS
    x = torch.rand(tiles, TILE, device=DEVICE)
    out = torch.empty_like(x)
    grid, turns = (blocks, TURNS) if faulty else (SMS, triton.cdiv(tiles, SMS))

    def run(take: Take) -> None:
        operands = (x, out, tiles, turns, take())
        options = {"ROUNDS": ROUNDS, "TILE": TILE, "num_warps": WARPS}
        smooth[(grid,)](*operands, SPREAD=not faulty, **options)

    return Case(run, out, relaxed(x, ROUNDS), {"warps": [0]})
