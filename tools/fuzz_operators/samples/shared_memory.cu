// Dynamic shared memory beyond 48 KB, with a cache configuration; and launch attributes.
#include "sample.h"

__global__ void transposed(const uint32_t *x, uint32_t *y, int side) {
    extern __shared__ uint32_t tile[];
    for (int i = threadIdx.x; i < side * side; i += blockDim.x)
        tile[i % side * (side + 1) + i / side] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < side * side; i += blockDim.x)
        y[i] = tile[i / side * (side + 1) + i % side] + blockIdx.x;
}

RUN {
    Words x(COUNT), y(COUNT, false);
    int bytes = 128 * 129 * 4;
    TRY(cudaFuncSetAttribute(transposed, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    TRY(cudaFuncSetAttribute(transposed, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    TRY(cudaFuncSetCacheConfig(transposed, cudaFuncCachePreferShared));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 512;
    config.dynamicSmemBytes = bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    TRY(cudaLaunchKernelEx(&config, transposed, (const uint32_t *)x.data, y.data, 128));
    return y.read(out);
}
