"""Adds to numbers in kernels; under ikp, records of one of them are broken on purpose.

``python -m tests.gpu.faulty LAUNCHER HOW``: LAUNCHER is triton or torch; HOW is fault (records go
to an address where nothing is), differs or hangs (the kernel with records is another one), or
nothing.
Kernels are launched before it and after it, and what all computed is printed.
"""

import sys
import time
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl

HEALTHY = 30
"""Launches before the broken one, one after the other has ended."""
NOWHERE = 1 << 46
SIZE = 4096
_broken = [False]


@triton.jit
def adds(x, out, n, WAY: tl.constexpr):
    """Add 1, or as ``WAY`` says: 2, or never end."""
    at = tl.program_id(0) * 128 + tl.arange(0, 128)
    value = tl.load(x + at, mask=at < n)
    if WAY == 2:
        flag = tl.load(x, volatile=True)
        while flag < 1e30:
            flag = tl.load(x, volatile=True)
    tl.store(out + at, value + 1 + (WAY == 1), mask=at < n)


@triton.jit
def doubles(x, out, n):
    """Double each number."""
    at = tl.program_id(0) * 128 + tl.arange(0, 128)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def described(x, out, N: tl.constexpr):
    """Add 1 to a tile that is reached by descriptors, which are made in memory of a launcher's."""
    source = tl.make_tensor_descriptor(x, shape=[N, N], strides=[N, 1], block_shape=[32, 32])
    target = tl.make_tensor_descriptor(out, shape=[N, N], strides=[N, 1], block_shape=[32, 32])
    target.store([0, 0], source.load([0, 0]) + 1)


def break_records(how: str, x: torch.Tensor, out: torch.Tensor) -> None:
    """Have kernels that are recorded while ``_broken`` is set fail so; only under ikp."""
    if "ikp" not in sys.modules or how == "nothing":
        return
    from ikp.backends import loaded
    from ikp.probes import patch as patching

    words, patch, load = loaded.Module.words, patching.patch, loaded.Module.load

    def to_nowhere(self: loaded.Module, *rest: Any) -> tuple[int, ...]:
        told = words(self, *rest)
        return (NOWHERE, *told[1:]) if _broken[0] else told

    def as_before(code: bytes, name: str, **options: Any) -> Any:
        if _broken[0]:
            others.append(patch(bytes(other.asm["cubin"]), name, **options))
        return patch(code, name, **options)

    def of_another(made: Any, name: str) -> loaded.Module:
        if not _broken[0]:
            return load(made, name)
        return load(replace(made, cubin=others[-1].cubin, registers=others[-1].registers), name)

    if how == "fault":
        loaded.Module.words = to_nowhere  # type: ignore[method-assign]
        return
    others: list[Any] = []
    way = {"differs": 1, "hangs": 2}[how]
    other = adds.warmup(x, out, SIZE, WAY=way, grid=(SIZE // 128,))
    patching.patch = as_before
    loaded.Module.load = of_another  # type: ignore[method-assign]


def main(launcher: str, how: str) -> None:
    x = torch.arange(SIZE, dtype=torch.float32, device="cuda")
    first, second, third = (torch.zeros_like(x) for _ in range(3))
    break_records(how, x, second)
    for left in range(HEALTHY)[::-1]:
        if not left:
            time.sleep(0.5)  # what ended so long ago is read at the next launch
        doubles[(SIZE // 128,)](x, first, SIZE)
        torch.cuda.synchronize()
    _broken[0] = True
    if launcher == "triton":
        adds[(SIZE // 128,)](x, second, SIZE, WAY=0)
    else:
        torch.sin(x, out=second)
    torch.cuda.synchronize()
    _broken[0] = False
    doubles[(SIZE // 128,)](second, third, SIZE)
    square = torch.zeros(64, 64, device="cuda")
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))
    described[(1,)](x[: 64 * 64], square, 64)
    print(*(float(each.double().sum()) for each in (first, second, third, square)))


if __name__ == "__main__":
    main(*sys.argv[1:])
