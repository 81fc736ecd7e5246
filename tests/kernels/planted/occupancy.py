"""Follows links through memory: with what is needed afterwards fetched early, into registers, or
fetched then, bit by bit.
"""

import torch
import triton
import triton.language as tl

import ikp
from tests.kernels.planted.case import DEVICE, ON_GPU, SMS, Case, Take

LANGUAGE, EXPECTED = "Triton", "register-limited occupancy"
BLOCK, WIDTH, PART = (128, 128, 8) if ON_GPU else (16, 16, 8)
BLOCKS_PER_SM, HOPS = (24, 200) if ON_GPU else (2, 5)


@triton.jit
def follow(
    links,
    weights,
    values,
    out,
    prof,
    EARLY: tl.constexpr,
    HOPS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    PART: tl.constexpr,
):
    """Write the sum of a row of weights times the value at the end of a path of links."""
    ikp.init(prof)
    lane = tl.arange(0, BLOCK)
    at = tl.program_id(0) * BLOCK + lane
    if EARLY:
        with ikp.range("weights"):
            early = tl.load(weights + lane[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :])
    with ikp.range("walk"):
        for _ in range(HOPS):
            at = tl.load(links + at, cache_modifier=".cg")
        value = tl.load(values + at)
    with ikp.range("sum"):
        total = tl.zeros((BLOCK,), tl.float32)
        if EARLY:
            total += tl.sum(early * value[:, None], 1)
        else:
            for first in range(0, WIDTH, PART):
                columns = first + tl.arange(0, PART)
                part = tl.load(weights + lane[:, None] * WIDTH + columns[None, :])
                total += tl.sum(part * value[:, None], 1)
    with ikp.range("store"):
        tl.store(out + tl.program_id(0) * BLOCK + lane, total)


def prepare(faulty: bool) -> Case:
    blocks = SMS * BLOCKS_PER_SM
    count = blocks * BLOCK
    places = torch.arange(count, device=DEVICE)
    links = ((places + 37 * BLOCK) % count).int()
    weights = torch.rand(BLOCK, WIDTH, device=DEVICE)
    values = torch.rand(count, device=DEVICE)
    out = torch.empty(count, device=DEVICE)
    ends = values[(places + HOPS * 37 * BLOCK) % count]
    expected = (ends.view(blocks, BLOCK) * weights.sum(1)).view(-1)

    def run(take: Take) -> None:
        sizes = {"HOPS": HOPS, "BLOCK": BLOCK, "WIDTH": WIDTH, "PART": PART}
        follow[(blocks,)](links, weights, values, out, take(), EARLY=faulty, **sizes, num_warps=4)

    return Case(run, out, expected, {"warps": [0], "blocks": range(0, blocks, 8)})
