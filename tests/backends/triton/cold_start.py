"""A program whose first use of ``ikp`` comes from eight threads at once; run as a module.

Each compiles a kernel as a launch would, for a GPU that need not be there: written by hand with a
buffer, with ``None`` in its place, and marked. Prints a line for each that failed, and returns how
many did.
"""

from __future__ import annotations

import sys
import threading

import torch
import triton
from triton.backends.compiler import GPUTarget

from tests.kernels import unedited, wrapped

THREADS = 8


class Driver:
    """Tells Triton that an H100 is there. Others in the tests import what is to be cold here."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def compile_one(number: int) -> None:
    """Compile one kernel, as the thread of that number does."""
    x, y = (torch.zeros(64, dtype=torch.float32) for _ in range(2))
    options = {"BLOCK": 64, "grid": (1,)}
    if number % 4 == 0:
        from ikp.backends.triton.unedited._clones import kernel_clone
        from ikp.backends.triton.unedited._mark_nodes import PROF
        from ikp.unedited.plan import plan

        marked = kernel_clone(unedited.several, plan())
        marked.warmup(x, y, 3, **{PROF: buffer()}, **options)
    else:
        prof = buffer() if number % 4 == 1 else None
        wrapped.scale.warmup(x, 64, prof, EVEN=True, NAME="add one", **options)


def buffer() -> object:
    """Return the argument for one launch, as a session on a GPU would."""
    from ikp.backends.triton import TritonBackend
    from ikp.core.segment import Segment, Spec

    data = torch.zeros(4096, dtype=torch.uint8)
    return TritonBackend().argument(Segment("k", data, Spec(), "triton", "a GPU", 0.0))


def main() -> int:
    """Return how many threads failed."""
    triton.runtime.driver._active = Driver()  # type: ignore[attr-defined]
    failures: list[str] = []
    together = threading.Barrier(THREADS)

    def work(number: int) -> None:
        together.wait()
        try:
            compile_one(number)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
            failures.append(f"thread {number}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(*failures, sep="\n")
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
