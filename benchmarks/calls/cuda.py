"""Kernels in CUDA C++ of kinds that are hard on records: short loops, switches, a work queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.calls.case import raw

STENCIL = """
extern "C" __global__ void stencil(float* out, const float* in, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 2 || y < 2 || x >= n - 2 || y >= n - 2) return;
    float sum = 0.0f;
    for (int dy = -2; dy <= 2; ++dy)
        #pragma unroll 1
        for (int dx = -2; dx <= 2; ++dx)
            sum += in[(y + dy) * n + x + dx] * (1.0f / (1 + dx * dx + dy * dy));
    out[y * n + x] = sum;
}
"""
SWITCH = """
extern "C" __global__ void interpret(float* out, const float* in, const int* code, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    float a = in[at], b = 1.0f;
    for (int pc = 0; pc < n; ++pc) {
        switch (code[pc]) {
            case 0: a = a + b; break;
            case 1: a = a * 1.0009f - b; break;
            case 2: b = sqrtf(fabsf(a) + 1.0f); break;
            case 3: { float t = a; a = b; b = t; break; }
            case 4: a = __sinf(a); break;
            case 5: b = b * 0.5f + 0.25f; break;
            case 6: if (a > b) a = a - b; else b = b - a; break;
            default: a = a / (1.0f + b * b); break;
        }
    }
    out[at] = a + b;
}
"""
QUEUE = """
extern "C" __global__ void queue(
        float* out, const float* in, const int* lengths, int* next, int rows, int width) {
    __shared__ int row;
    __shared__ float parts[4];
    for (;;) {
        if (threadIdx.x == 0) row = atomicAdd(next, 1);
        __syncthreads();
        int mine = row;
        if (mine >= rows) return;
        float sum = 0.0f;
        for (int i = threadIdx.x; i < lengths[mine]; i += blockDim.x)
            sum += __expf(in[mine * width + i]);
        for (int o = 16; o; o >>= 1) sum += __shfl_down_sync(~0u, sum, o);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x == 0) out[mine] = parts[0] + parts[1] + parts[2] + parts[3];
    }
}
"""


def launch(
    text: str,
    name: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    out: torch.Tensor,
    *others: Any,
    shared: int = 0,
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return a launch of a kernel, compiled now, that returns its first argument."""
    kernel = raw(text, name)
    grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]

    def call() -> tuple[torch.Tensor, ...]:
        kernel(grid=grid, block=block, args=(out, *others), shared_mem=shared)
        return (out,)

    return call
