"""Steps of one iteration: a launch for each of them, or one launch for all."""

import torch
import triton
import triton.language as tl

import ikp
from tests.kernels.planted.case import DEVICE, ON_GPU, SMS, Case, Take
from tests.kernels.planted.work import relax, relaxed

LANGUAGE, EXPECTED = "Triton", "launch latency"
STEPS = 40
TILE, ROUNDS = (1024, 32) if ON_GPU else (32, 2)


@triton.jit
def advance(x, out, first, steps, prof, ROUNDS: tl.constexpr, TILE: tl.constexpr):
    """Write out = x after so many steps."""
    ikp.init(prof)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    values = tl.load(x + at)
    for step in range(steps):
        with ikp.range("step", first + step):
            values = relax(values, ROUNDS)
    with ikp.range("store"):
        tl.store(out + at, values)


def prepare(faulty: bool) -> Case:
    x = torch.rand(SMS * TILE, device=DEVICE)
    out = torch.empty_like(x)
    launches, steps = (STEPS, 1) if faulty else (1, STEPS)

    def run(take: Take) -> None:
        buffers = [take() for _ in range(launches)]
        source = x
        for launch, buffer in enumerate(buffers):
            advance[(SMS,)](source, out, launch * steps, steps, buffer, ROUNDS=ROUNDS, TILE=TILE)
            source = out

    chosen = {"warps": [0], "blocks": range(0, SMS, 33 if ON_GPU else 2), "size": 1 << 16}
    return Case(run, out, relaxed(x, STEPS * ROUNDS), chosen, queued=False)
