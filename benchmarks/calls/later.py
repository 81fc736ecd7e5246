"""Calls of further libraries, Triton's and CUDA C++'s, split by name before one of them had run.

Every second name, in their order, is to judge by. CuPy compiles what is in CUDA C++.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.calls.case import Case, c_functions, definitions, randn, same, source

HALF, FLOAT = torch.float16, torch.float32
COMMON = """
typedef unsigned int uint;
#define assert(x)
#define FLT_MAX 3.402823466e+38F
#define WARP_SIZE 32
#define WARP_SIZE_S 16
#define INT4(value) (reinterpret_cast<int4 *>(&(value))[0])
#define FLOAT4(value) (reinterpret_cast<float4 *>(&(value))[0])
#define theta 10000.0f
#define IN_RANGE(x, min, max) ((x) >= (min) && (x) <= (max))
#define MIN(a, b) ((a) <= (b) ? (a) : (b))
#define HALO 1
#define WIDTH 16
#define HEIGHT 16
"""


def empty(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype, device="cuda")


def integers(most: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, most, shape, dtype=torch.int32, device="cuda")


def launch(
    text: str, name: str, grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any
) -> Case:
    """Return a launch of a kernel, compiled now, that returns the tensors among its arguments."""
    import cupy
    import numpy as np

    def passed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return np.uint64(value.data_ptr())
        return np.float32(value) if isinstance(value, float) else np.int32(value)

    module = cupy.RawModule(code=COMMON + text, options=("-std=c++17",), name_expressions=(name,))
    kernel = module.get_function(name)
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    given = tuple(map(passed, arguments))

    def call() -> list[torch.Tensor]:
        kernel(grid, block, given)
        return tensors

    return same(), call


def _flash_attention() -> dict[str, Callable[[], Case]]:
    folder = ("flash-attention", "flash_attn", "ops", "triton")

    def rotary() -> Case:
        module = definitions(*folder, "rotary.py")
        angles = randn(4096, 64)
        return same(randn(2, 4096, 32, 128), angles.cos(), angles.sin()), module.apply_rotary

    def cross_entropy() -> Case:
        module = definitions(*folder, "cross_entropy.py")
        return same(randn(8192, 8192), integers(8192, 8192).long()), module.cross_entropy_loss

    return {"flash_rotary": rotary, "flash_cross_entropy": cross_entropy}


def _mamba() -> dict[str, Callable[[], Case]]:
    def gated() -> Case:
        from mamba_ssm.ops.triton.layernorm_gated import rmsnorm_fn

        return same(randn(8192, 4096), randn(4096), None, randn(8192, 4096)), rmsnorm_fn

    def state_update() -> Case:
        from mamba_ssm.ops.triton.selective_state_update import selective_state_update

        heads, size, state = 64, 64, 128
        x, dt, z = (randn(64, heads, size) for _ in "xdz")
        b, c = (randn(64, 8, state) for _ in "bc")
        a, bias = -randn(heads, size, state, dtype=FLOAT).exp(), randn(heads, size)
        states = randn(64, heads, size, state)
        update = partial(selective_state_update, D=randn(heads, size), z=z, dt_bias=bias)
        return same(states, x, dt, a, b, c), partial(update, dt_softplus=True)

    def chunk_scan() -> Case:
        from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

        x, dt = randn(2, 4096, 32, 64), randn(2, 4096, 32)
        b, c = (randn(2, 4096, 1, 128) for _ in "bc")
        return same(x, dt, -randn(32, dtype=FLOAT).exp(), b, c, 256), partial(
            mamba_chunk_scan_combined, dt_softplus=True
        )

    return {
        "mamba_gated_norm": gated,
        "mamba_state_update": state_update,
        "mamba_chunk_scan": chunk_scan,
    }


def _lmdeploy() -> dict[str, Callable[[], Case]]:
    def kernel(module: str, name: str) -> Any:
        path = f"lmdeploy.pytorch.kernels.cuda.{module}"
        return getattr(__import__(path, fromlist=[name]), name)

    def rms_norm() -> Case:
        x, weight, residual = randn(8192, 4096), randn(4096), randn(8192, 4096)
        return same(x, weight, 1e-6, residual), kernel("rms_norm", "rms_norm")

    def silu() -> Case:
        return same(randn(8192, 8192)), kernel("activation", "silu_and_mul")

    def topk() -> Case:
        ones, lengths = integers(1, 64) + 1, integers(1, 64) + 16384
        scores = randn(64, 16384, dtype=FLOAT)
        return same(scores, ones, lengths, 512), kernel("bitonic_topk", "bitonic_topk")

    def sampling() -> Case:
        scores = randn(4096, 4096, dtype=FLOAT).softmax(-1).sort(-1, descending=True)[0]
        zeros = empty(4096, dtype=torch.int64)
        return same(scores, zeros, zeros), kernel("multinomial_sampling", "multinomial_sampling")

    def rotary() -> Case:
        angles = randn(8192, 128)
        arguments = randn(8192, 32, 128), randn(8192, 8, 128), angles.cos(), angles.sin()
        return same(*arguments), kernel("apply_rotary_pos_emb", "apply_rotary_pos_emb")

    def awq() -> Case:
        x, scales = randn(16, 4096, dtype=HALF), randn(32, 4096, dtype=HALF)
        weights, zeros = integers(1 << 30, 4096, 512), integers(1 << 30, 32, 512)
        return same(x, weights, scales, zeros), kernel("awq_kernels", "awq_linear")

    made = (rms_norm, silu, topk, sampling, rotary, awq)
    return {f"lmdeploy_{each.__name__}": each for each in made}


def _others() -> dict[str, Callable[[], Case]]:
    """Return calls of S-LoRA, bitsandbytes and a rewriting of Flash Attention."""

    def slora_attention() -> Case:
        from slora.models.llama.triton_kernel import context_flashattention_nopad as module

        q, k, v, out = (randn(8192, 16, 64, dtype=HALF) for _ in "qkvo")
        starts = torch.arange(0, 8192, 1024, dtype=torch.int32, device="cuda")
        lengths = torch.full_like(starts, 1024)

        def call() -> torch.Tensor:
            module.context_attention_fwd(q, k, v, out, starts, lengths, 1024)
            return out

        return same(), call

    def slora_rms_norm() -> Case:
        from slora.models.llama.triton_kernel.rmsnorm import rmsnorm_forward

        return same(randn(8192, 4096, dtype=HALF), randn(4096, dtype=HALF), 1e-6), rmsnorm_forward

    def bitsandbytes_quantize() -> Case:
        from bitsandbytes.backends.triton.kernels_8bit_quant import quantize_blockwise_triton

        code = torch.linspace(-1, 1, 256, device="cuda")
        return same(randn(1 << 24, dtype=FLOAT), code, 256), quantize_blockwise_triton

    def umar_attention() -> Case:
        module = definitions("triton-flash-attention", "triton", "flash_attention.py")
        q, k, v = (randn(4, 16, 2048, 64, dtype=HALF) for _ in "qkv")
        return same(q, k, v, True, 0.125), module.TritonAttention.apply

    made = (slora_attention, slora_rms_norm, bitsandbytes_quantize, umar_attention)
    return {each.__name__: each for each in made}


def _sgemm() -> dict[str, Callable[[], Case]]:
    """Return matrix products of SGEMM_CUDA."""

    def case(file: str, name: str, grid: tuple[int, ...], threads: int) -> Case:
        text = source("SGEMM_CUDA", "src", "kernels", file).read_text()
        text = re.sub(r"^#(include|pragma).*$", "", text, flags=re.MULTILINE)
        a, b, out = (randn(1024, 1024, dtype=FLOAT) for _ in "abc")
        return launch(text, name, grid, (threads,), 1024, 1024, 1024, 1.0, a, b, 0.5, out)

    shared = "3_kernel_shared_mem_blocking.cuh", "sgemm_shared_mem_block<32>", (32, 32), 1024
    tiles = "sgemm2DBlocktiling<128, 128, 8, 8, 8>"
    warps = "sgemmWarptiling<128, 128, 16, 64, 64, 4, 8, 4, 128>"
    return {
        "sgemm_shared": partial(case, *shared),
        "sgemm_tiles": partial(case, "5_kernel_2D_blocktiling.cuh", tiles, (8, 8), 256),
        "sgemm_warps": partial(case, "10_kernel_warptiling.cuh", warps, (8, 8), 128),
    }


def _leetcuda() -> dict[str, Callable[[], Case]]:
    def text(folder: str, file: str, *functions: str) -> str:
        return c_functions(source("LeetCUDA", "kernels", folder, file), *functions)

    def rows(folder: str, file: str, helpers: tuple[str, ...], kernel: str, *more: Any) -> Case:
        x, out = randn(16384, 1024, dtype=FLOAT), empty(16384, 1024)
        made = text(folder, file, *helpers, kernel)
        return launch(made, f"{kernel}<256>", (16384,), (256,), x, out, *more)

    sums = ("warp_reduce_sum_f32", "block_reduce_sum_f32")
    most = ("warp_reduce_max_f32", "block_reduce_max_f32")

    def transpose() -> Case:
        name = "mat_transpose_f32x4_shared_col2row2d_kernel"
        x, out = randn(4096, 4096, dtype=FLOAT), empty(4096, 4096)
        made = text("mat-transpose", "mat_transpose.cu", name)
        return launch(made, name, (64, 256), (16, 16), x, out, 4096, 4096)

    def histogram() -> Case:
        name, count = "histogram_i32x4_kernel", 1 << 22
        made = text("histogram", "histogram.cu", name)
        values, bins = integers(1024, count), empty(1024, dtype=torch.int32)
        return launch(made, name, (count // 1024,), (256,), values, bins, count)

    def rope() -> Case:
        name, length, half = "rope_f32_kernel", 16384, 512
        made = text("rope", "rope.cu", name)
        x, out = randn(length, 2 * half, dtype=FLOAT), empty(length, 2 * half)
        return launch(made, name, (length * half // 256,), (256,), x, out, length, half)

    softmax = "safe_softmax_f32x4_per_token_kernel"
    norm = "layer_norm_f32x4_kernel"
    return {
        "leetcuda_softmax": partial(
            rows, "softmax", "softmax.cu", sums + most, softmax, 16384 * 1024
        ),
        "leetcuda_layer_norm": partial(
            rows, "layer-norm", "layer_norm.cu", sums, norm, 1.0, 0.0, 16384, 1024
        ),
        "leetcuda_transpose": transpose,
        "leetcuda_histogram": histogram,
        "leetcuda_rope": rope,
    }


def _rodinia() -> dict[str, Callable[[], Case]]:
    def text(size: int, *parts: str, functions: tuple[str, ...]) -> str:
        path = source("gpu-rodinia", "cuda", *parts)
        return f"#define BLOCK_SIZE {size}\n{c_functions(path, *functions)}"

    def lud() -> Case:
        made = text(16, "lud", "cuda", "lud_kernel.cu", functions=("lud_internal",))
        return launch(
            made, "lud_internal", (127, 127), (16, 16), randn(2048, 2048).float(), 2048, 0
        )

    def needle() -> Case:
        functions = ("maximum", "needle_cuda_shared_1")
        made = text(16, "nw", "needle_kernel.cu", functions=functions)
        costs, scores = integers(20, 4097, 4097), integers(20, 4097, 4097)
        return launch(made, functions[1], (256,), (16,), costs, scores, 4097, 10, 256, 256)

    def pathfinder() -> Case:
        made = text(256, "pathfinder", "pathfinder.cu", functions=("dynproc_kernel",))
        columns, steps = 1 << 20, 20
        wall, before, after = (integers(10, n * columns) for n in (steps, 1, 1))
        blocks = -(-columns // (256 - 2 * steps))
        arguments = (steps, wall, before, after, columns, steps, 0, steps)
        return launch(made, "dynproc_kernel", (blocks,), (256,), *arguments)

    def hotspot() -> Case:
        made = text(16, "hotspot", "hotspot.cu", functions=("calculate_temp",))
        size, steps = 2048, 2
        power, before, after = (randn(size, size, dtype=FLOAT) for _ in "pba")
        blocks = -(-size // (16 - 2 * steps))
        arguments = (steps, power, before, after, size, size, steps, steps)
        physical = (0.5, 1.0, 1.0, 100.0, 0.001, 0.001)
        return launch(made, "calculate_temp", (blocks, blocks), (16, 16), *arguments, *physical)

    def backprop() -> Case:
        name, inputs = "bpnn_layerforward_CUDA", 1 << 18
        made = text(16, "backprop", "backprop_cuda_kernel.cu", functions=(name,))
        units, hidden = randn(inputs + 1, dtype=FLOAT), empty(17)
        weights, sums = randn(inputs + 1, 17, dtype=FLOAT), empty(inputs)
        arguments = (units, hidden, weights, sums, inputs, 16)
        return launch(made, name, (1, inputs // 16), (16, 16), *arguments)

    made = (lud, needle, pathfinder, hotspot, backprop)
    return {f"rodinia_{each.__name__}": each for each in made}


_EVERY: dict[str, Callable[[], Case]] = {
    **_flash_attention(),
    **_mamba(),
    **_lmdeploy(),
    **_others(),
    **_sgemm(),
    **_leetcuda(),
    **_rodinia(),
}
DEVELOP = {name: _EVERY[name] for name in sorted(_EVERY)[::2]}
JUDGE = {name: _EVERY[name] for name in sorted(_EVERY)[1::2]}
