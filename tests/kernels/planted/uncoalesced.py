"""Reads one field of every point: points stored one after another, or field by field."""

import torch
import triton
import triton.language as tl

import ikp
from tests.kernels.planted.case import DEVICE, ON_GPU, SMS, Case, Take
from tests.kernels.planted.work import relax, relaxed

LANGUAGE, EXPECTED = "Triton", "uncoalesced loads"
FIELDS, TURNS, ROUNDS = 8, 16, 16
TILE = 4096 if ON_GPU else 64


@triton.jit
def gather(
    points,
    out,
    prof,
    STRIDE: tl.constexpr,
    TURNS: tl.constexpr,
    ROUNDS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Write a sum over this block's points for each of TILE places."""
    ikp.init(prof)
    lane = tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for turn in range(TURNS):
        with ikp.range("read", turn):
            at = (tl.program_id(0) * TURNS + turn) * TILE + lane
            total += tl.load(points + at * STRIDE)
        with ikp.range("mix", turn):
            total = relax(total, ROUNDS)
    with ikp.range("store"):
        tl.store(out + tl.program_id(0) * TILE + lane, total)


def prepare(faulty: bool) -> Case:
    points = torch.rand(SMS, TURNS, TILE, FIELDS, device=DEVICE)
    field = points[..., 0]
    out = torch.empty(SMS, TILE, device=DEVICE)
    expected = torch.zeros_like(out, dtype=torch.float64)
    for turn in range(TURNS):
        expected = relaxed(expected + field[:, turn], ROUNDS)
    source, stride = (points, FIELDS) if faulty else (field.contiguous(), 1)

    def run(take: Take) -> None:
        sizes = {"STRIDE": stride, "TURNS": TURNS, "ROUNDS": ROUNDS, "TILE": TILE}
        gather[(SMS,)](source, out, take(), **sizes, num_warps=8)

    return Case(run, out, expected, {"warps": [0], "blocks": range(0, SMS, 4)})
