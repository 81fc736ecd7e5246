// Kernels with work that their results don't need, and, without FAULT, the same without it.
// benchmarks/planted_code.py compiles, records and times each twin.
#ifndef FAULT
#define FAULT 0
#endif
#if !FAULT
#define NDEBUG
#endif
#include <assert.h>

#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
typedef unsigned int word;

// serial-sums: one sum in place of eight.
extern "C" __global__ void sums(float* __restrict__ out, const float* __restrict__ in, int n) {
  __shared__ float4 table[256];
  for (int k = threadIdx.x; k < 256; k += blockDim.x) table[k] = ((const float4*)in)[k];
  __syncthreads();
  float x = in[THREAD % 1024], sum[FAULT ? 1 : 8] = {};
#pragma unroll 1
  for (int k = 0; k < n; k += 64) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 v = table[(k / 4 + j) % 256];
      sum[FAULT ? 0 : j % 2 * 4 + 0] += v.x * x, sum[FAULT ? 0 : j % 2 * 4 + 1] += v.y * x;
      sum[FAULT ? 0 : j % 2 * 4 + 2] += v.z * x, sum[FAULT ? 0 : j % 2 * 4 + 3] += v.w * x;
    }
  }
  for (int k = 1; k < (FAULT ? 1 : 8); ++k) sum[0] += sum[k];
  out[THREAD] = sum[0];
}

// unfused-sums: each product is rounded before it is added.
extern "C" __global__ void horner(float* __restrict__ out, const float* __restrict__ in, int n) {
  float x = in[THREAD % 1024], y[4] = {x, 2 * x, 3 * x, 4 * x};
#pragma unroll 1
  for (int k = 0; k < n; k += 32) {
#pragma unroll
    for (int j = 0; j < 32; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        y[i] = FAULT ? __fadd_rn(__fmul_rn(y[i], x), 0.5f) : fmaf(y[i], x, 0.5f);
  }
  out[THREAD] = y[0] + y[1] + y[2] + y[3];
}

// checks: each step of a walk is looked at.
extern "C" __global__ void walk(float* __restrict__ out, const float* __restrict__ in, int n) {
  __shared__ float table[1024];
  for (int k = threadIdx.x; k < 1024; k += blockDim.x) table[k] = in[k];
  __syncthreads();
  word at = THREAD % 1024;
  float sum = 0;
#pragma unroll 4
  for (int k = 0; k < n; ++k) {
    float v = table[at];
    assert(at < 1024);
    assert(v >= 0 && v <= 1);
    at = (at * 5 + (word)(v * 64)) % 1024;
    sum += v;
    assert(sum < 1e9f);
  }
  out[THREAD] = sum;
}

// unpacked-numbers: float16 numbers by integer arithmetic, in place of one conversion.
__device__ float decoded(word bits) {
  word sign = bits & 0x8000, exponent = bits >> 10 & 31, fraction = bits & 1023;
  word whole = exponent ? (exponent + 112) << 23 | fraction << 13 : 0;
  return __uint_as_float(exponent == 31 ? 0x7f800000 | sign << 16 : whole | sign << 16);
}

__device__ float converted(word bits) {
  float found;
  asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(found) : "r"(bits));
  return found;
}

extern "C" __global__ void decode(float* __restrict__ out, const word* __restrict__ in, int n) {
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < n; k += 8)
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      word pair = in[(THREAD + 32 * (k + j)) % 4096], low = pair & 0xffff, high = pair >> 16;
      sum += FAULT ? decoded(low) * decoded(high) : converted(low) * converted(high);
    }
  out[THREAD] = sum;
}

// alike-lanes: each lane sums all numbers, in place of every 32nd.
extern "C" __global__ void alike(float* __restrict__ out, const float* __restrict__ in, int n) {
  const float* row = in + THREAD / 32 * 1024;
  float sum = 0;
#pragma unroll 4
  for (int k = FAULT ? 0 : threadIdx.x % 32; k < n; k += FAULT ? 1 : 32) sum += __expf(row[k]);
#if !FAULT
  for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
#endif
  out[THREAD] = sum;
}

// linear-search: step by step through sorted numbers, in place of halves.
extern "C" __global__ void search(int* __restrict__ out, const float* __restrict__ in, int n) {
  float x = (THREAD * 2654435761u >> 8) * (1.0f / (1 << 24));
#if FAULT
  int at = 0;
  while (at < n - 1 && in[at] < x) ++at;
#else
  int at = 0, end = n - 1;
  while (at < end) {
    int middle = (at + end) / 2;
    if (in[middle] < x) at = middle + 1;
    else end = middle;
  }
#endif
  out[THREAD] = at;
}

// repeated-stores: a sum in shared memory, in place of a register.
extern "C" __global__ void kept(float* __restrict__ out, const float* __restrict__ in, int n) {
  __shared__ float sums[128];
  volatile float* mine = sums + threadIdx.x;
  float sum = 0;
  *mine = 0;
#pragma unroll 4
  for (int k = 0; k < n; ++k) {
    float x = in[(THREAD + 32 * k) % 4096];
    if (FAULT) *mine += x * x;
    else sum += x * x;
  }
  out[THREAD] = FAULT ? *mine : sum;
}

// private-staging: numbers through shared memory that no other thread loads.
extern "C" __global__ void staged(float* __restrict__ out, const float* __restrict__ in, int n) {
  __shared__ float stage[128];
  float x = in[THREAD % 1024];
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
#if FAULT
    stage[threadIdx.x] = x;
    __syncthreads();
    x = stage[threadIdx.x];
    __syncthreads();
#endif
    x = fmaf(x, 0.75f, 0.5f);
  }
  out[THREAD] = x;
}

// unused-random-numbers: one word of the four of each evaluation.
__device__ uint4 philox(word counter) {
  uint4 c = make_uint4(counter, 0, 0, 0);
  word key = 17, other = 23;
#pragma unroll
  for (int k = 0; k < 10; ++k) {
    word high = __umulhi(0xD2511F53u, c.x), low = 0xD2511F53u * c.x;
    word high2 = __umulhi(0xCD9E8D57u, c.z), low2 = 0xCD9E8D57u * c.z;
    c = make_uint4(high2 ^ c.y ^ key, low2, high ^ c.w ^ other, low);
    key += 0x9E3779B9u, other += 0xBB67AE85u;
  }
  return c;
}

extern "C" __global__ void noise(float* __restrict__ out, const float* __restrict__ in, int n) {
  float sum = in[THREAD % 1024];
#pragma unroll 1
  for (int k = 0; k < n; k += 4) {
#if FAULT
    for (int j = 0; j < 4; ++j) sum += philox(THREAD * n + k + j).x * 2.3e-10f;
#else
    uint4 c = philox(THREAD * n + k);
    sum += (c.x * 2.3e-10f + c.y * 2.3e-10f) + (c.z * 2.3e-10f + c.w * 2.3e-10f);
#endif
  }
  out[THREAD] = sum;
}

// unchanged-values: a few numbers replaced, and all written back.
extern "C" __global__ void cleared(float* data, const int* __restrict__ marks, int n) {
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    size_t at = (size_t)k * gridDim.x * blockDim.x + THREAD;
    int mark = marks[at / 32];
#if FAULT
    float x = data[at];
    data[at] = mark ? 0.0f : x;
#else
    if (mark) data[at] = 0.0f;
#endif
  }
}
