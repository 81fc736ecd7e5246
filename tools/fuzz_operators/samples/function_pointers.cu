// Functions called by pointers, from a table in constant memory and by virtual methods.
#include "sample.h"

typedef uint32_t (*Step)(uint32_t, uint32_t);
__device__ __noinline__ uint32_t plus(uint32_t a, uint32_t b) { return a + 3 * b; }
__device__ __noinline__ uint32_t times(uint32_t a, uint32_t b) { return a * (b | 1); }
__device__ __noinline__ uint32_t mixed(uint32_t a, uint32_t b) {
    for (uint32_t i = 0; i < (b & 7); i++) a ^= a << 3 | i;
    return a;
}
__device__ Step steps[3] = {plus, times, mixed};

struct Shape {
    __device__ virtual uint32_t area(uint32_t x) const = 0;
};
struct Square : Shape {
    __device__ uint32_t area(uint32_t x) const override { return x * x; }
};
struct Line : Shape {
    __device__ uint32_t area(uint32_t x) const override { return 2 * x + 1; }
};

__global__ void calls(uint32_t *x, int n) {
    Square square;
    Line line;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t a = x[i];
        for (int k = 0; k < 9; k++) a = steps[a % 3](a, k);
        const Shape *shape = a & 1 ? (const Shape *)&square : (const Shape *)&line;
        x[i] = shape->area(a);
    }
}

RUN {
    Words x(COUNT);
    calls<<<40, 128>>>(x.data, COUNT);
    return x.read(out);
}
