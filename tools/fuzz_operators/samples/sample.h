// What all samples share: each has `run`, which fills `out` with what its kernels computed.
#pragma once
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        cudaError_t code_ = (call);                                                                \
        if (code_ != cudaSuccess) {                                                                \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code_));                    \
            return (int)code_;                                                                     \
        }                                                                                          \
    } while (0)

// Memory of the device, always with the same words in it.
struct Words {
    uint32_t *data = nullptr;
    int count;
    explicit Words(int n, bool mixed = true) : count(n) {
        uint32_t *host = new uint32_t[n];
        for (int i = 0; i < n; i++) host[i] = mixed ? (uint32_t)i * 2654435761u >> 7 : 0;
        if (cudaMalloc(&data, (size_t)n * 4) == cudaSuccess)
            cudaMemcpy(data, host, (size_t)n * 4, cudaMemcpyHostToDevice);
        delete[] host;
    }
    ~Words() { cudaFree(data); }
    int read(uint32_t *out) const {
        TRY(cudaGetLastError());
        TRY(cudaMemcpy(out, data, (size_t)count * 4, cudaMemcpyDeviceToHost));
        return 0;
    }
};

constexpr int COUNT = 1 << 14; // words that each sample returns
#define RUN extern "C" int run(uint32_t *out)
