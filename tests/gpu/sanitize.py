"""Every test kernel once: run it under ``compute-sanitizer --tool memcheck`` and ``racecheck``."""

from itertools import product

import torch

import ikp
from tests.gpu import gluon_kernels, kernels
from tests.kernels import choices


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


if __name__ == "__main__":
    main()
