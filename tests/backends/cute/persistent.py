"""A persistent kernel of clusters: a tile scheduler, a 3-D grid, roles, barriers of a cluster."""

import cutlass
from cutlass import Float32, Int32, cute, utils

import ikp

TILES = (4, 3, 5)
CLUSTER = (2, 1, 1)
CLUSTERS = 4  # at most; the scheduler's grid is (2, 1, 4)
THREADS = 256


class Persistent:
    """Adds 1 to a tile's element of each thread; each role does half of the threads."""

    @cute.jit
    def __call__(self, out: cute.Tensor, prof):
        tiles = utils.PersistentTileSchedulerParams(TILES, CLUSTER)
        grid = utils.StaticPersistentTileScheduler.get_grid_shape(tiles, CLUSTERS)
        self.kernel(out, tiles, prof).launch(
            grid=grid, block=[THREADS, 1, 1], cluster=CLUSTER, min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(self, out: cute.Tensor, tiles: utils.PersistentTileSchedulerParams, prof):
        ikp.init(prof)
        thread, _, _ = cute.arch.thread_idx()
        group = cute.arch.make_warp_uniform(thread // 128)
        with ikp.range("wait for cluster", cute.arch.block_idx_in_cluster()):
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        if group == 0:
            cute.arch.setmaxregister_decrease(40)
            self.work(out, thread, tiles, "first role")
        if group == 1:
            cute.arch.setmaxregister_increase(232)
            self.work(out, thread, tiles, "second role")
        ikp.finish()

    @cute.jit
    def work(self, out: cute.Tensor, thread: Int32, tiles, role: cutlass.Constexpr):
        scheduler = utils.StaticPersistentTileScheduler.create(
            tiles, cute.arch.block_idx(), cute.arch.grid_dim()
        )
        tile = scheduler.initial_work_tile_info()
        while tile.is_valid_tile:
            m, n, layer = tile.tile_idx
            index = m + TILES[0] * (n + TILES[1] * layer)
            with ikp.range(role, index):
                out[index, thread] = out[index, thread] + Float32(1.0)
            scheduler.advance_to_next_work()
            tile = scheduler.get_current_work()
