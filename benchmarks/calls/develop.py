"""Calls to develop with: among them the kinds that cost most where nothing was tuned on them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as f

from benchmarks.calls import cuda
from benchmarks.calls.case import Case, definitions, gate, heads, randn, same
from benchmarks.calls.spilling import spilling

TUTORIALS = ("triton", "python", "tutorials")


def stencil() -> Case:
    x, out = randn(4096, 4096, dtype=torch.float32), torch.zeros(4096, 4096, device="cuda")
    return same(), cuda.launch(cuda.STENCIL, "stencil", (128, 512), (32, 8), out, x, 4096)


def switch() -> Case:
    code = torch.randint(0, 8, (64,), dtype=torch.int32, device="cuda")
    x, out = randn(1 << 20, dtype=torch.float32), torch.zeros(1 << 20, device="cuda")
    return same(), cuda.launch(cuda.SWITCH, "interpret", (4096,), (256,), out, x, code, 64)


def work_queue() -> Case:
    """Blocks take rows of uneven length; what each writes does not depend on who took it."""
    lengths = torch.randint(1, 512, (8192,), dtype=torch.int32, device="cuda")
    x, out = randn(8192, 512, dtype=torch.float32), torch.zeros(8192, device="cuda")
    next_row = torch.zeros(1, dtype=torch.int32, device="cuda")
    run = cuda.launch(cuda.QUEUE, "queue", (264,), (128,), out, x, lengths, next_row, 8192, 512)

    def call() -> tuple[torch.Tensor, ...]:
        next_row.zero_()
        return run()

    return same(), call


def cudnn_conv() -> Case:
    x = randn(32, 256, 56, 56).to(memory_format=torch.channels_last)
    w = randn(256, 256, 3, 3).to(memory_format=torch.channels_last)
    return same(x, w), lambda x, w: f.conv2d(x, w, padding=1)


def cudnn_conv_float() -> Case:
    x, w = randn(16, 64, 56, 56, dtype=torch.float32), randn(64, 64, 3, 3, dtype=torch.float32)
    return same(x, w), lambda x, w: f.conv2d(x, w, padding=1)


def torch_layer_norm() -> Case:
    w = randn(4096)
    return same(randn(8192, 4096), w), lambda x, w: f.layer_norm(x, (4096,), w, w)


def torch_sum() -> Case:
    return same(randn(8192, 4096, dtype=torch.float32)), lambda x: x.sum(1)


def torch_cumsum() -> Case:
    return same(randn(4096, 4096, dtype=torch.float32)), lambda x: x.cumsum(1)


def torch_embedding() -> Case:
    rows = torch.randint(0, 32000, (16384,), device="cuda")
    return same(rows, randn(32000, 2048)), f.embedding


def _group() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    sizes = (1024, 512, 2048, 256)
    half = torch.float16
    return [randn(m, 1024, dtype=half) for m in sizes], [randn(1024, 1024, dtype=half)] * 4


def grouped_gemm() -> Case:
    module = definitions(*TUTORIALS, "08-grouped-gemm.py")
    return same(*_group()), module.group_gemm_fn


def grouped_gemm_tma() -> Case:
    module = definitions(*TUTORIALS, "08-grouped-gemm.py")
    a, b = _group()
    return same(a, [each.T.contiguous() for each in b]), module.group_gemm_tma_fn


def tutorial_matmul() -> Case:
    module = definitions(*TUTORIALS, "03-matrix-multiplication.py")
    half = torch.float16
    return same(randn(2048, 2048, dtype=half), randn(2048, 2048, dtype=half)), module.matmul


def entmax() -> Case:
    from adasplash.triton_entmax import triton_entmax

    return same(randn(4096, 4096)), triton_entmax


def entmax_histogram() -> Case:
    from adasplash.triton_entmax_v2 import triton_entmax

    return same(randn(4096, 4096)), triton_entmax


def inductor_gelu_norm() -> Case:
    @torch.compile
    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return f.rms_norm(f.gelu(x) * x, (4096,), w)

    return same(randn(8192, 4096), randn(4096)), call


def liger_geglu() -> Case:
    from liger_kernel.ops.geglu import LigerGELUMulFunction as Call

    return same(randn(4096, 11008), randn(4096, 11008)), Call.apply


def liger_group_norm() -> Case:
    from liger_kernel.ops.group_norm import LigerGroupNormFunction as Call

    w = randn(512, dtype=torch.float32)
    return same(randn(32, 512, 1024, dtype=torch.float32), w, w, 512, 32, 1e-6), Call.apply


def fla_delta_rule() -> Case:
    from fla.ops.delta_rule import chunk_delta_rule

    return same(*heads(), randn(2, 4096, 16).sigmoid()), lambda *each: chunk_delta_rule(*each)[0]


def fla_retention() -> Case:
    from fla.ops.retention import chunk_retention

    return same(*heads()), lambda *each: chunk_retention(*each)[0]


def fla_forgetting_attention() -> Case:
    from fla.ops.forgetting_attn import parallel_forgetting_attn

    return same(*heads(), gate(2, 4096, 16)), parallel_forgetting_attn


def attorch_softmax() -> Case:
    import attorch

    return same(randn(8192, 4096)), attorch.Softmax(dim=1)


def matmul_spills() -> Case:
    return spilling(128, 256, 64, stages=3)


CASES: dict[str, Callable[[], Case]] = {
    each.__name__: each
    for each in (
        *(stencil, switch, work_queue, cudnn_conv, cudnn_conv_float, torch_layer_norm, torch_sum),
        *(torch_cumsum, torch_embedding, grouped_gemm, grouped_gemm_tma, tutorial_matmul, entmax),
        *(entmax_histogram, inductor_gelu_norm, liger_geglu, liger_group_norm, fla_delta_rule),
        *(fla_retention, fla_forgetting_attention, attorch_softmax, matmul_spills),
    )
}
KERNELS: dict[str, str] = {
    "cudnn_conv": "conv|xmma|cudnn|cutlass|prop",
    "cudnn_conv_float": "conv|xmma|cudnn|cutlass|prop|nchw",
    "torch_layer_norm": "layer_norm",
    "torch_sum": "reduce_kernel",
    "torch_cumsum": "scan|cumsum",
    "torch_embedding": "index|embedding|gather",
}
"""Patterns of the kernels that are recorded, of libraries that are left alone otherwise."""
