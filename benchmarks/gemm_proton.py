"""The same GEMM with Proton's scopes: the peer that gemm_overhead.py measures beside ikp.

python gemm_proton.py MODE dot|both ROUNDS      prints one line of JSON
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import triton
import triton.language as tl
import triton.profiler as proton
import triton.profiler.language as pl
from gemm_kernels import _tile
from gemm_timing import Gemm, pairs

pl.enable_semantic("triton")


@triton.jit
def gemm_both(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr
):
    """Two scopes per iteration: the loads and the dot."""
    tile_m, tile_n = _tile(M, N, BM, BN, GM)
    m, n, k = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    at = a + m[:, None] * K + k[None, :]
    bt = b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        with pl.scope("load"):
            x = tl.load(at)
            y = tl.load(bt)
        with pl.scope("dot"):
            acc = tl.dot(x, y, acc)
        at += BK
        bt += BK * N
    with pl.scope("store"):
        tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


@triton.jit
def gemm_dot(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr
):
    """One scope per iteration: the dot."""
    tile_m, tile_n = _tile(M, N, BM, BN, GM)
    m, n, k = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    at = a + m[:, None] * K + k[None, :]
    bt = b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        x = tl.load(at)
        y = tl.load(bt)
        with pl.scope("dot"):
            acc = tl.dot(x, y, acc)
        at += BK
        bt += BK * N
    with pl.scope("store"):
        tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


def main() -> None:
    mode, what, rounds = sys.argv[1:]
    gemm = Gemm()
    kernel = {"dot": gemm_dot, "both": gemm_both}[what]
    path = str(Path(tempfile.mkdtemp()) / "proton")
    session = proton.start(path, backend="instrumentation", data="trace", mode=mode)
    proton.deactivate(session)

    def launch() -> None:
        # Proton divides by zero on a kernel with no scopes: it sleeps while the plain one runs.
        proton.activate(session)
        gemm.launch(kernel)
        proton.deactivate(session)

    ratios, plain = pairs(gemm, launch, int(rounds))
    print(json.dumps({"ratios": ratios, "plain_us": plain}), flush=True)
    os._exit(0)  # finalize would write hundreds of megabytes per launch


if __name__ == "__main__":
    main()
