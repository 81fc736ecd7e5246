// cp.async in a pipeline of stages, and bulk copies that an mbarrier waits for.
#include "sample.h"
#include <cuda/barrier>
#include <cuda/pipeline>

constexpr int PART = 512;

__global__ void staged(const uint32_t *x, uint32_t *y, int parts) {
    __shared__ alignas(16) uint32_t stage[3][PART];
    cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
    auto fetch = [&](int part) {
        pipe.producer_acquire();
        if (part < parts)
            cuda::memcpy_async(stage[part % 3] + threadIdx.x * 4,
                               x + part * PART + threadIdx.x * 4,
                               cuda::aligned_size_t<16>(16), pipe);
        pipe.producer_commit();
    };
    fetch(blockIdx.x);
    fetch(blockIdx.x + gridDim.x);
    for (int part = blockIdx.x; part < parts; part += gridDim.x) {
        cuda::pipeline_consumer_wait_prior<1>(pipe);
        __syncthreads();
        for (int k = threadIdx.x; k < PART; k += blockDim.x)
            y[part * PART + k] = stage[part % 3][PART - 1 - k] * 3 + part;
        __syncthreads();
        pipe.consumer_release();
        fetch(part + 2 * gridDim.x);
    }
}

__global__ void bulk(const uint32_t *x, uint32_t *y, int parts) {
    __shared__ alignas(128) uint32_t stage[PART];
    using Barrier = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ Barrier full;
    if (threadIdx.x == 0) {
        init(&full, blockDim.x);
        cuda::device::experimental::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    for (int part = blockIdx.x; part < parts; part += gridDim.x) {
        Barrier::arrival_token token;
        if (threadIdx.x == 0) {
            cuda::device::experimental::cp_async_bulk_global_to_shared(stage, x + part * PART,
                                                                       PART * 4, full);
            token = cuda::device::barrier_arrive_tx(full, 1, PART * 4);
        } else {
            token = full.arrive();
        }
        full.wait(std::move(token));
        for (int k = threadIdx.x; k < PART; k += blockDim.x)
            y[part * PART + k] += stage[k ^ 1] ^ part;
        __syncthreads();
    }
}

RUN {
    Words x(COUNT), y(COUNT, false);
    staged<<<4, PART / 4>>>(x.data, y.data, COUNT / PART);
    bulk<<<5, 96>>>(x.data, y.data, COUNT / PART);
    return y.read(out);
}
