"""Causal attention in Triton, an ordinary program: nothing of ikp is in it.

python attention.py                           prints the kernel's time
python attention.py --longest-first           the same blocks in another order
ikp run --detail ops attention.py             what takes the time, and why
"""

import argparse
import math
import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import triton
import triton.language as tl


@triton.jit
def attention(
    q, k, v, out, scale, tokens,
    LONGEST_FIRST: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Compute ROWS rows of softmax(scale * q k^T) v, causal, of one head of [heads, tokens, DIM].

    ``scale`` includes log2(e). Blocks are numbered by heads, and within a head by rows.
    """
    tiles = tokens // ROWS
    if LONGEST_FIRST:  # all heads' last rows, then those before them
        heads = tl.num_programs(0) // tiles
        tile = tiles - 1 - tl.program_id(0) // heads
        head = tl.program_id(0) % heads
    else:
        tile = tl.program_id(0) % tiles
        head = tl.program_id(0) // tiles
    rows = tile * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)
    base = head * tokens * DIM
    queries = tl.load(q + base + rows[:, None] * DIM + dims[None, :])
    top = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, DIM), tl.float32)
    for start in range(0, (tile + 1) * ROWS, COLS):
        columns = start + tl.arange(0, COLS)
        at = base + columns[:, None] * DIM + dims[None, :]
        keys = tl.load(k + at)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        scores = tl.where(rows[:, None] >= columns[None, :], scores, -1e30)
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        rescale = tl.exp2(top - new_top)
        total = total * rescale + tl.sum(weights, 1)
        values = tl.load(v + at)
        acc = tl.dot(weights.to(values.dtype), values, acc * rescale[:, None])
        top = new_top
    result = (acc / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + base + rows[:, None] * DIM + dims[None, :], result)


def main() -> None:
    parser = argparse.ArgumentParser(description="Causal attention in Triton.")
    parser.add_argument("--longest-first", action="store_true", help="start long blocks first")
    longest_first = parser.parse_args().longest_first
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    heads, tokens, dim, rows = (16, 2048, 128, 128) if gpu else (2, 256, 32, 32)
    torch.manual_seed(0)
    q, k, v = torch.randn((3, heads, tokens, dim), dtype=torch.float16, device=device)
    out = torch.empty_like(q)

    def launch() -> None:
        attention[(heads * tokens // rows,)](
            q, k, v, out, 1 / math.log(2) / math.sqrt(dim), tokens, LONGEST_FIRST=longest_first,
            DIM=dim, ROWS=rows, COLS=rows // 2, num_warps=8, num_stages=2,
        )  # fmt: skip

    launch()
    right = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), is_causal=True
    )
    print(f"largest difference from PyTorch's result: {(out.float() - right).abs().max():.1e}")
    if gpu:
        print(
            f"a launch takes {1e3 * triton.testing.do_bench(launch, return_mode='median'):.1f} us"
        )
    else:
        print("no GPU: it ran in Triton's interpreter, at a small size")


if __name__ == "__main__":
    main()
