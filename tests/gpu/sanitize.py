"""Every test kernel once: run it under ``compute-sanitizer --tool memcheck`` and ``racecheck``."""

import torch

import ikp
from tests.gpu import kernels


def main() -> None:
    out = torch.empty(300 * 1024, device="cuda")
    ints = torch.empty(300 * 1024, dtype=torch.int32, device="cuda")
    longs = torch.empty(300, dtype=torch.int64, device="cuda")
    for overflow in ("stop", "wrap"):
        for size in (None, 128 + 64 * 4 * (64 + 5 * 16), 1024):
            with ikp.profile(overflow=overflow) as prof:
                kernels.counted[(4, 4, 4)](out, 20, prof.buffer("a", size=size), True)
                kernels.early_exit[(64,)](ints, 20, prof.buffer("b", size=size))
                kernels.functional[(64,)](out, 20, prof.buffer("c", size=size))
                kernels.spin[(64,)](longs, 1000, prof.buffer("d", size=size))
            print(overflow, size, [launch.kept for launch in prof.trace.launches])


if __name__ == "__main__":
    main()
