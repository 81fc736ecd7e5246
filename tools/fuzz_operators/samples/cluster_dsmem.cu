// Clusters: blocks read each other's shared memory.
#include "sample.h"

__global__ void __cluster_dims__(4, 1, 1) exchange(uint32_t *x, int rounds) {
    __shared__ uint32_t mine[256];
    cg::cluster_group cluster = cg::this_cluster();
    int at = blockIdx.x * 256 + threadIdx.x;
    mine[threadIdx.x] = x[at];
    for (int round = 0; round < rounds; round++) {
        cluster.sync();
        uint32_t *other = cluster.map_shared_rank(mine, (cluster.block_rank() + 1) % 4);
        uint32_t got = other[255 - threadIdx.x];
        cluster.sync();
        mine[threadIdx.x] = got * 5 + round;
    }
    x[at] = mine[threadIdx.x];
}

RUN {
    Words x(COUNT);
    exchange<<<COUNT / 256, 256>>>(x.data, 7);
    return x.read(out);
}
