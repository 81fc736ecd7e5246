"""Every test kernel once: run it under ``compute-sanitizer --tool memcheck`` and ``racecheck``.

With ``machine``, kernels that nobody edited, with records in their machine code: run that under
``initcheck`` and ``synccheck``, too. Their results are compared with the plain kernels'.
"""

import sys
import warnings
from itertools import product

import torch

import ikp
from tests.gpu import gluon_kernels, kernels
from tests.kernels import choices
from tests.sass import kernels as unedited


def main() -> None:
    out = torch.empty(300 * 1024, device="cuda")
    ints = torch.empty(300 * 1024, dtype=torch.int32, device="cuda")
    longs = torch.empty(300, dtype=torch.int64, device="cuda")
    sizes = (None, 128 + 64 * 4 * (64 + 5 * 16), 1024)
    for overflow, size in product(("stop", "wrap"), sizes):
        for chosen in ({}, {"warps": [1, 3], "blocks": range(3, 60, 7)}):
            with ikp.profile(overflow=overflow) as prof:
                first = prof.buffer("a", size=size, **chosen)
                kernels.counted[(4, 4, 4)](out, 20, first, True)
                kernels.early_exit[(64,)](ints, 20, prof.buffer("b", size=size))
                kernels.functional[(64,)](out, 20, prof.buffer("c", size=size))
                kernels.spin[(64,)](longs, 1000, prof.buffer("d", size=size))
                gluon_kernels.specialised[(50,)](ints, 20, prof.buffer("e", size=size))
                choices.conditional[(64,)](ints, 20, prof.buffer("f", size=size))
                if overflow == "stop":
                    choices.placed[(64,)](ints, 20, prof.buffer("g", size=size))
            kept = [launch.kept for launch in prof.trace.launches]
            print(overflow, size, chosen, kept)


def machine() -> None:
    """Record in machine code: all blocks, a sample, chosen blocks, chosen warps."""
    warnings.simplefilter("ignore", ikp.IkpWarning)  # what is not recorded
    choices = ({"sample": 1}, {}, {"blocks": range(0, 1 << 31, 7)}, {"warps": [0, 2]})
    for detail, chosen in product(("loops", "waits", "ops"), choices):
        with ikp.profile() as prof:
            for launch in _launches():
                if not torch.equal(launch(lambda kernel: kernel), launch(_marked(detail, chosen))):
                    sys.exit(f"{launch.__name__} at {detail}, {chosen}: other results")
        kept = [(each.label, each.kept, each.dropped) for each in prof.trace.launches]
        print(detail, chosen, kept, flush=True)


def _marked(detail, chosen):
    return lambda kernel: ikp.instrument(kernel, detail=detail, level="machine", **chosen)


def _launches():
    """Yield what launches a kernel, as it is or marked, and returns what that wrote."""
    torch.manual_seed(0)
    half = {"device": "cuda", "dtype": torch.float16}
    a, b = torch.randn(256, 128, **half), torch.randn(128, 256, **half)
    x, weight = torch.randn(300, 512, **half), torch.randn(512, device="cuda")
    q, k, v = (torch.randn(256, 64, **half) for _ in "qkv")
    table = torch.randn(4096, device="cuda")
    index = torch.randint(0, 16, (300 * 4,), device="cuda", dtype=torch.int32)

    def matmul(marked):
        c = torch.zeros(256, 256, **half)
        tile = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 3}
        marked(unedited.matmul)[(4, 4)](a, b, c, 256, 128, **tile)
        return c

    def attention(marked):
        out = torch.zeros(256, 64, **half)
        marked(unedited.attention)[(4,)](q, k, v, out, 256, 0.1, D=64, BM=64, BN=64)
        return out

    def rms_norm(marked):
        out = torch.zeros_like(x)
        marked(unedited.rms_norm)[(300,)](x, weight, out, 512, 1e-6, BLOCK=256)
        return out

    def gathered(marked):
        out = torch.zeros(300 * 256, device="cuda")
        marked(unedited.gathered)[(300,)](table, index, out, 4, BLOCK=256)
        return out

    yield from (matmul, attention, rms_norm, gathered)


if __name__ == "__main__":
    machine() if sys.argv[1:] == ["machine"] else main()
