// Nearly all registers of a thread in use at once, and more than there are.
#include "sample.h"

template <int LIVE> __device__ void work(uint32_t *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t kept[LIVE];
#pragma unroll
    for (int k = 0; k < LIVE; k++) kept[k] = x[(i + k * 67) % n];
    for (int round = 0; round < 4; round++) {
        uint32_t first = kept[0];
#pragma unroll
        for (int k = 0; k + 1 < LIVE; k++) kept[k] = kept[k + 1] * 3 + kept[k];
        kept[LIVE - 1] += first;
    }
    uint32_t sum = 0;
#pragma unroll
    for (int k = 0; k < LIVE; k++) sum = sum * 31 + kept[k];
    __syncthreads();
    if (i < n) x[i] = sum;
}

__global__ void __launch_bounds__(256, 1) wide(uint32_t *x, int n) { work<236>(x, n); }
__global__ void __launch_bounds__(256, 4) spilling(uint32_t *x, int n) { work<120>(x, n); }
__global__ void __launch_bounds__(1024, 2) narrow(uint32_t *x, int n) { work<24>(x, n); }

RUN { // each alone writes where no other thread reads
    Words x(256), y(256), z(1024);
    wide<<<1, 256>>>(x.data, 256);
    spilling<<<1, 256>>>(y.data, 256);
    narrow<<<1, 1024>>>(z.data, 1024);
    if (int code = x.read(out)) return code;
    if (int code = y.read(out + 256)) return code;
    return z.read(out + 512);
}
