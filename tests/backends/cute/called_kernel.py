"""What ``called.py`` compiles. Its comments name lines that tests look for."""

from __future__ import annotations

from typing import Any

from cutlass import Int32, cute


def scaled(x: Any, at: Any) -> Any:
    return x[at] * 2.0  # read


def twice(x: Any, at: Any) -> Any:
    return scaled(x, at) + 1.0  # inner call


def put(x: Any, at: Any, value: Any) -> None:
    cute.arch.sync_threads()  # barrier
    x[at] = value  # write


@cute.kernel
def kernel(x: cute.Tensor, n: Int32):
    lane, _, _ = cute.arch.thread_idx()
    for k in range(n):
        if k % 2 == 0:
            put(x, lane + k, twice(x, lane))  # even
        else:
            put(x, lane + 64, scaled(x, lane + k))  # odd
    if n > 3:
        put(x, lane, scaled(x, lane + 7))  # behind


@cute.jit
def launch(x: cute.Tensor, n: Int32):
    kernel(x, n).launch(grid=[1, 1, 1], block=[64, 1, 1])
