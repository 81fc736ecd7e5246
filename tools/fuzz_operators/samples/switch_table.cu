// A switch with so many cases that it is a table of places to jump to.
#include "sample.h"

__global__ void machine(uint32_t *x, int n, int steps) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t a = x[i], b = i;
        for (int step = 0; step < steps; step++) {
            switch ((a ^ b) & 15) {
            case 0: a = a * 3 + b; break;
            case 1: b = __brev(a); break;
            case 2: a -= b * 7; break;
            case 3: b ^= a >> 3; break;
            case 4: a = __funnelshift_l(a, b, 5); break;
            case 5: b += __popc(a); break;
            case 6: a = a / (b | 1); break;
            case 7: b = b % (a | 1); break;
            case 8: a = __umulhi(a, b); break;
            case 9: b = __byte_perm(a, b, 0x3175); break;
            case 10: a = max(a, b) - 1; break;
            case 11: b = min(a, b) + 11; break;
            case 12: a = (uint32_t)__fsqrt_rn((float)a); break;
            case 13: b = __clz(a) * 977; break;
            case 14: a = __vadd4(a, b); break;
            default: b = a * a + b; break;
            }
        }
        x[i] = a + b;
    }
}

RUN {
    Words x(COUNT);
    machine<<<40, 96>>>(x.data, COUNT, 100);
    return x.read(out);
}
