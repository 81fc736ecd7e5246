// nvcc: -lcuda
// TMA: a tile of a tensor copied by a descriptor that is a kernel's parameter.
#include "sample.h"
#include <cuda.h>
#include <cuda/barrier>

constexpr int SIDE = 128, TILE = 32;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

__global__ void tiles(const __grid_constant__ CUtensorMap map, uint32_t *y) {
    __shared__ alignas(128) uint32_t tile[TILE][TILE];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ Barrier full;
    if (threadIdx.x == 0) {
        init(&full, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_global_to_shared(tile, &map, blockIdx.x * TILE,
                                                      blockIdx.y * TILE, full);
        token = cuda::device::barrier_arrive_tx(full, 1, sizeof tile);
    } else {
        token = full.arrive();
    }
    full.wait(std::move(token));
    for (int i = threadIdx.x; i < TILE * TILE; i += blockDim.x) {
        int row = i / TILE, column = i % TILE;
        y[(blockIdx.y * TILE + row) * SIDE + blockIdx.x * TILE + column] = tile[column][row];
    }
}

RUN {
    Words x(SIDE * SIDE), y(SIDE * SIDE, false);
    CUtensorMap map;
    cuuint64_t sizes[] = {SIDE, SIDE}, strides[] = {SIDE * 4};
    cuuint32_t box[] = {TILE, TILE}, steps[] = {1, 1};
    CUresult made = cuTensorMapEncodeTiled(
        &map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, x.data, sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (made) return (int)made;
    tiles<<<dim3(SIDE / TILE, SIDE / TILE), 128>>>(map, y.data);
    return y.read(out);
}
