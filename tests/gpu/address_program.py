"""Launches the kernels of ``address_cases`` by the CUDA driver's functions, one after another."""

import sys

import torch

from tests.gpu.address_cases import BLOCKS, CASES, THREADS
from tests.gpu.driver_api import launch, of_module
from tests.gpu.driver_program import fingerprint
from tests.sass.assembled import cubin


def main(only: str = "") -> None:
    memory = torch.zeros(BLOCKS << 18, dtype=torch.uint8, device="cuda")
    for case in CASES:
        if only in case.name:
            function = of_module(cubin(case.ptx, "sm_90a"), case.name)
            launch(function, memory, blocks=BLOCKS, threads=THREADS)
    torch.cuda.synchronize()
    print(fingerprint(memory))


if __name__ == "__main__":
    main(*sys.argv[1:])
