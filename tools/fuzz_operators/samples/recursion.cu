// Recursion on each thread's stack, to different depths.
#include "sample.h"

__device__ __noinline__ uint32_t walk(uint32_t a, int depth) {
    uint32_t kept[4] = {a, a * 3, a ^ 5, a >> 2};
    if (depth == 0) return kept[a & 3];
    uint32_t left = walk(kept[depth & 3] + 1, depth - 1);
    return a & 1 ? left + kept[(left + depth) & 3] : left ^ walk(left, depth / 2);
}

__global__ void walks(uint32_t *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = walk(x[i], i % 9);
}

RUN {
    TRY(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
    Words x(COUNT);
    walks<<<COUNT / 64, 64>>>(x.data, COUNT);
    return x.read(out);
}
