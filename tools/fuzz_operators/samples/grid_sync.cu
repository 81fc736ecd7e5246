// Cooperative groups: grid.sync() between passes, in a loop.
#include "sample.h"

__global__ void passes(uint32_t *x, uint32_t *y, int n, int times) {
    cg::grid_group grid = cg::this_grid();
    int step = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int pass = 0; pass < times; pass++) {
        for (int i = first; i < n; i += step) y[i] = x[i] * 3 + x[(i + 257) % n];
        grid.sync();
        for (int i = first; i < n; i += step) x[i] = y[n - 1 - i] ^ pass;
        grid.sync();
    }
}

RUN {
    Words x(COUNT), y(COUNT, false);
    int n = COUNT, times = 5;
    void *arguments[] = {&x.data, &y.data, &n, &times};
    TRY(cudaLaunchCooperativeKernel((void *)passes, 32, 128, arguments, 0, 0));
    return x.read(out);
}
