"""Row softmax in Triton, with a range around the whole row and one around each of its parts.

Run: ``python examples/softmax_triton.py [softmax.pftrace]``. Without a GPU it runs in Triton's
interpreter: the ranges are the same, the times are the host's.
"""

import os
import sys
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported

import triton
import triton.language as tl

import ikp


@triton.jit
def softmax(x, out, columns, prof, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Write the softmax of each row. x, out: contiguous [blocks * ROWS, columns <= BLOCK]."""
    ikp.init(prof)
    at = tl.arange(0, BLOCK)
    for i in range(ROWS):
        row = tl.program_id(0) * ROWS + i
        with ikp.range("row", row):
            with ikp.range("load"):
                values = tl.load(x + row * columns + at, at < columns, other=-float("inf"))
            with ikp.range("max"):
                top = tl.max(values, 0)
            with ikp.range("exp and sum"):
                weights = tl.exp(values - top)
                total = tl.sum(weights, 0)
            with ikp.range("store"):
                tl.store(out + row * columns + at, weights / total, at < columns)


def main(path: Path) -> None:
    """Profile one launch, check its result, and write the trace."""
    on_gpu = torch.cuda.is_available() and not triton.knobs.runtime.interpret
    rows, columns, each = (8192, 4000, 8) if on_gpu else (16, 200, 2)
    x = torch.randn(rows, columns, device="cuda" if on_gpu else "cpu")
    out = torch.empty_like(x)
    with ikp.profile(path, force=True) as prof:
        block = triton.next_power_of_2(columns)
        buffer = prof.buffer("softmax")
        softmax[(rows // each,)](x, out, columns, buffer, ROWS=each, BLOCK=block)
    torch.testing.assert_close(out, torch.softmax(x, 1))
    print(prof.trace.stats())
    print(f"wrote {path}: see it with `ikp view {path}`")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "softmax.pftrace"))
