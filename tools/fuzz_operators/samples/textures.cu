// Reading through a texture, with interpolation, and reading and writing through surfaces.
#include "sample.h"

constexpr int SIDE = 128;

__global__ void resampled(cudaTextureObject_t from, cudaSurfaceObject_t to, float shift) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < 5; k++)
        sum += tex2D<float>(from, (x + k * shift) / SIDE, (y - k * shift) / SIDE);
    surf2Dwrite(sum, to, x * 4, y);
}

__global__ void copied(cudaSurfaceObject_t from, uint32_t *out) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float value;
    surf2Dread(&value, from, x * 4, y, cudaBoundaryModeClamp);
    out[y * SIDE + x] = __float_as_uint(value);
}

RUN {
    static float values[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) values[i] = (float)((i * 7919) % 1000) / 37;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t source, target;
    TRY(cudaMallocArray(&source, &format, SIDE, SIDE));
    TRY(cudaMallocArray(&target, &format, SIDE, SIDE, cudaArraySurfaceLoadStore));
    TRY(cudaMemcpy2DToArray(source, 0, 0, values, SIDE * 4, SIDE * 4, SIDE,
                            cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = source;
    cudaTextureDesc texture = {};
    texture.addressMode[0] = cudaAddressModeWrap;
    texture.addressMode[1] = cudaAddressModeMirror;
    texture.filterMode = cudaFilterModeLinear;
    texture.normalizedCoords = 1;
    cudaTextureObject_t from;
    cudaSurfaceObject_t to;
    TRY(cudaCreateTextureObject(&from, &resource, &texture, nullptr));
    resource.res.array.array = target;
    TRY(cudaCreateSurfaceObject(&to, &resource));
    Words x(SIDE * SIDE, false);
    dim3 grid(SIDE / 16, SIDE / 16), block(16, 16);
    resampled<<<grid, block>>>(from, to, 0.37f);
    copied<<<grid, block>>>(to, x.data);
    int code = x.read(out);
    cudaDestroyTextureObject(from);
    cudaDestroySurfaceObject(to);
    cudaFreeArray(source);
    cudaFreeArray(target);
    return code;
}
