// nvcc: -G
// Without optimisation, with all that a debugger needs.
#include "sample.h"

struct Pair {
    uint32_t a, b;
};

__device__ Pair turned(Pair p, int k) {
    Pair made;
    made.a = p.b + k;
    made.b = p.a * 3;
    return made;
}

__global__ void unoptimised(uint32_t *x, int n) {
    __shared__ uint32_t part[128];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        Pair p = {x[i], (uint32_t)i};
        for (int k = 0; k < 11; k++) p = turned(p, k);
        part[threadIdx.x] = p.a;
        __syncthreads();
        x[i] = part[127 - threadIdx.x] ^ p.b;
        __syncthreads();
    }
}

RUN {
    Words x(COUNT);
    unoptimised<<<32, 128>>>(x.data, COUNT);
    return x.read(out);
}
