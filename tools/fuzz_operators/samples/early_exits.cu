// Threads that leave in divergent branches, by return and by exit, beside a trap that none reaches.
#include "sample.h"

__global__ void leaving(uint32_t *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint32_t a = x[i];
    if (a % 5 == 0) {
        x[i] = a + 1;
        asm volatile("exit;");
    }
    for (int k = 0; k < 20; k++) {
        a = a * 1664525u + 1013904223u;
        if ((a >> 28) == 3) {
            x[i] = a ^ k;
            return;
        }
        if (n < 0) asm volatile("trap;");
        if (n < -1) asm volatile("brkpt;");
    }
    x[i] = a;
}

RUN {
    Words x(COUNT);
    leaving<<<COUNT / 96 + 1, 96>>>(x.data, COUNT);
    return x.read(out);
}
