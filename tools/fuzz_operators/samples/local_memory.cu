// Arrays indexed by data, in each thread's local memory.
#include "sample.h"

__global__ void sorted(uint32_t *x, int n) {
    uint32_t mine[64];
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 64;
    if (i >= n) return;
    for (int k = 0; k < 64; k++) mine[(k * 37) % 64] = x[i + k];
    for (int k = 1; k < 64; k++) {
        uint32_t one = mine[k];
        int at = k;
        while (at > 0 && mine[at - 1] > one) {
            mine[at] = mine[at - 1];
            at--;
        }
        mine[at] = one;
    }
    for (int k = 0; k < 64; k++) x[i + k] = mine[k];
}

RUN {
    Words x(COUNT);
    sorted<<<4, 64>>>(x.data, COUNT);
    return x.read(out);
}
