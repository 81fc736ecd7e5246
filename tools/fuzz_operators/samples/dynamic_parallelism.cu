// nvcc: -rdc=true -lcudadevrt
// A kernel that launches kernels.
#include "sample.h"

__global__ void child(uint32_t *x, int n, uint32_t factor) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = x[i] * factor + i;
}

__global__ void parent(uint32_t *x, int n, int parts) {
    int part = n / parts;
    if (threadIdx.x == 0)
        for (int i = blockIdx.x; i < parts; i += gridDim.x)
            child<<<1, 64>>>(x + i * part, part, 2 * i + 1);
}

RUN {
    Words x(COUNT);
    parent<<<4, 32>>>(x.data, COUNT, 16);
    TRY(cudaDeviceSynchronize());
    return x.read(out);
}
