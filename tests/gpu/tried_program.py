"""Launches the kernels of ``tried_cases``; with "times", prints those of each and its twin."""

import statistics
import sys

import torch

from tests.gpu.driver_api import Handle, launch, of_module
from tests.gpu.driver_program import fingerprint
from tests.gpu.tried_cases import BLOCKS, CASES, SPINS, THREADS
from tests.sass.assembled import cubin

ROUNDS = 15


HELD_CYCLES = 10_000_000
"""So long, some 5 ms, the GPU is kept busy before a launch, which a slow host has made by then: the
time between the events is the GPU's alone."""


def timed(function: Handle, memory: torch.Tensor, delay: torch.Tensor) -> float:
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(HELD_CYCLES)
    delay.zero_()
    first.record()
    launch(function, memory, blocks=BLOCKS, threads=THREADS)
    second.record()
    second.synchronize()
    return first.elapsed_time(second)


def times(memory: torch.Tensor) -> None:
    delay = torch.zeros(1 << 28, dtype=torch.uint8, device="cuda")
    for case in CASES:
        twins = [
            of_module(cubin(case.whole, "sm_90a"), case.name),
            of_module(cubin(case.without, "sm_90a"), f"{case.name}_without"),
        ]
        rounds = [[timed(each, memory, delay) for each in twins] for _ in range(ROUNDS + 1)][1:]
        gain = statistics.median(1 - other / plain for plain, other in rounds)
        print(case.name, gain, statistics.median(plain for plain, _ in rounds))


def main(what: str = "") -> None:
    memory = torch.zeros(4 << 20, dtype=torch.uint8, device="cuda")
    if what == "times":
        times(memory)
        return
    for name, ptx in [*((case.name, case.whole) for case in CASES), ("spins", SPINS)]:
        launch(of_module(cubin(ptx, "sm_90a"), name), memory, blocks=BLOCKS, threads=THREADS)
    torch.cuda.synchronize()
    print(fingerprint(memory[8192:16384]))


if __name__ == "__main__":
    main(*sys.argv[1:])
