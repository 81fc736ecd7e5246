// Shuffles, votes, matches and reductions by some threads of a warp, in divergent branches.
#include "sample.h"
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

__global__ void groups(uint32_t *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    uint32_t a = x[i % n];
    cg::thread_block block = cg::this_thread_block();
    for (int round = 0; round < 6; round++) {
        if ((a >> round) & 1) {
            cg::coalesced_group some = cg::coalesced_threads();
            a += cg::reduce(some, a & 1023, cg::plus<uint32_t>()) + some.shfl(a, 0);
            some.sync();
        } else {
            unsigned alike = __match_any_sync(__activemask(), a & 3);
            a ^= __popc(alike) << (lane & 7);
        }
        __syncwarp();
        auto tile = cg::tiled_partition<8>(block);
        a += cg::inclusive_scan(tile, a & 255) + __reduce_max_sync(0xffffffff, a & 63);
        auto labelled = cg::labeled_partition(cg::coalesced_threads(), (int)(a & 1));
        a += labelled.size();
        if (__any_sync(0xffffffff, a % 7 == 0)) a = __shfl_xor_sync(0xffffffff, a, 5) + 1;
    }
    if (i < n) x[i] = a;
}

RUN {
    Words x(COUNT);
    groups<<<COUNT / 128, 128>>>(x.data, COUNT);
    return x.read(out);
}
