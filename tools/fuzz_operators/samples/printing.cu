// printf and assert on the device: system calls from a kernel.
#include "sample.h"
#include <cassert>

__global__ void talking(uint32_t *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    assert(i < n && "never fails");
    uint32_t *made = (uint32_t *)malloc(16);
    if (i % 4096 == 1) printf("thread %d has %u\n", i, x[i]);
    if (made) made[i & 3] = x[i] * 7;
    x[i] = made ? made[i & 3] + 1 : 0;
    free(made);
}

RUN {
    Words x(COUNT);
    talking<<<COUNT / 128, 128>>>(x.data, COUNT);
    return x.read(out);
}
