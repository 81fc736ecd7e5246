// Blocks that wait for each other with nanosleep, a lock, and the last block of a reduction.
#include "sample.h"

__device__ uint32_t turn, lock, arrived;

__global__ void in_turn(uint32_t *x, int n) {
    if (threadIdx.x == 0) {
        while (atomicAdd(&turn, 0) != blockIdx.x) __nanosleep(100);
        x[blockIdx.x] = x[(blockIdx.x + n - 1) % n] * 3 + blockIdx.x;
        __threadfence();
        atomicAdd(&turn, 1);
    }
}

__global__ void locked(uint32_t *x) {
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&lock, 0, 1)) __nanosleep(20);
        __threadfence();
        volatile uint32_t *sum = x;
        *sum = *sum + threadIdx.x + blockIdx.x;
        __threadfence();
        atomicExch(&lock, 0);
    }
}

__global__ void last_block(const uint32_t *x, uint32_t *parts, uint32_t *sum, int n) {
    __shared__ bool last;
    uint32_t mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        mine += x[i];
    mine = __reduce_add_sync(0xffffffff, mine);
    if (threadIdx.x % 32 == 0) atomicAdd(parts + blockIdx.x, mine);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&arrived, 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) {
        uint32_t all = 0;
        for (int i = 0; i < gridDim.x; i++) all = all * 3 + ((volatile uint32_t *)parts)[i];
        *sum = all;
        arrived = 0;
    }
}

RUN {
    uint32_t zero = 0;
    Words x(64), y(1, false), z(COUNT), parts(64, false), sum(1, false);
    TRY(cudaMemcpyToSymbol(turn, &zero, 4));
    in_turn<<<64, 32>>>(x.data, 64);
    locked<<<64, 128>>>(y.data);
    last_block<<<64, 128>>>(z.data, parts.data, sum.data, COUNT);
    if (int code = x.read(out)) return code;
    if (int code = y.read(out + 64)) return code;
    return sum.read(out + 65);
}
