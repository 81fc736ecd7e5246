"""transformer_nuggets' two CuTe kernels, in ikp: nested regions, and a producer with a consumer.

Run: ``python examples/from_nuggets_cute.py [nuggets.pftrace]``, on an NVIDIA GPU. docs/migrating.md
has the calls side by side. The kernels take no event counts, warp numbers or event indices: each
warp has a slot of its own, and counts in it. ``--static`` places the nested regions by index, as
the original does.
"""

import argparse
import sys
from pathlib import Path

import cutlass
import torch
from cutlass import Float32, Int32, cute
from cutlass.cute.runtime import from_dlpack

import ikp

THREADS, PAIR = 128, 64  # of a block of nested regions; of a block of a producer and a consumer
PRODUCER_ITERS, CONSUMER_ITERS = 200_000, 120_000


class NestedRegions:
    """Adds 1 to each element a number of times, a region around each part of it."""

    def __init__(self, iterations: int = 4, static: bool = False) -> None:
        self.iterations = iterations
        self.static = static

    def place(self, index):
        """Return where in the warp's slot a record goes; None: after the last."""
        return index if self.static else None

    @cute.kernel
    def kernel(self, output: cute.Tensor, prof):
        """Record one "iteration", and in it a "compute" per turn with a "store" inside."""
        ikp.init(prof)
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        at = block * THREADS + thread
        with ikp.range("iteration", index=self.place(0)):
            for i in cutlass.range(self.iterations, unroll=1):
                with ikp.range("compute", i, index=self.place(1 + 2 * i)):
                    value = output[at] + 1
                    with ikp.range("store", i, index=self.place(2 + 2 * i)):
                        output[at] = value
        ikp.finish()

    @cute.jit
    def __call__(self, output: cute.Tensor, prof):
        """Launch on all elements. output: float32, one dimension, a multiple of THREADS long."""
        blocks = cute.size(output) // THREADS
        self.kernel(output, prof).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1])


@cute.jit
def work(turns: Int32):
    """Return 2, after so many multiplications that wait for each other."""
    value = Float32(0.0)
    for _ in cutlass.range(turns, unroll=1):
        value = value * Float32(0.5) + Float32(1.0)
    return value


class ProducerAndConsumer:
    """Two warps per block with work of their own."""

    @cute.kernel
    def kernel(self, output: cute.Tensor, prof):
        """Write output[0 : 32] in each block's first warp, output[32 : 64] in its second."""
        ikp.init(prof)
        block, _, _ = cute.arch.block_idx()
        at = block * PAIR + cute.arch.thread_idx()[0]
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            ikp.role("producer")
            with ikp.range("produce"):
                output[at] = work(Int32(PRODUCER_ITERS))
        if warp == 1:
            ikp.role("consumer")
            with ikp.range("consume"):
                output[at] = work(Int32(CONSUMER_ITERS))
        ikp.finish()

    @cute.jit
    def __call__(self, output: cute.Tensor, prof):
        """Launch. output: float32, [blocks * PAIR]."""
        blocks = cute.size(output) // PAIR
        self.kernel(output, prof).launch(grid=[blocks, 1, 1], block=[PAIR, 1, 1])


def main(arguments: list[str] | None = None) -> None:
    """Profile one launch of each, check their results, and write the trace."""
    parser = argparse.ArgumentParser(description="transformer_nuggets' kernels, in ikp.")
    parser.add_argument("out", nargs="?", type=Path, default=Path("nuggets.pftrace"))
    parser.add_argument("--static", action="store_true", help="place nested regions by index")
    args = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit("this example needs an NVIDIA GPU: CuTe kernels run nowhere else.")
    nested, pair = torch.zeros(1 << 14, device="cuda"), torch.zeros(4 * PAIR, device="cuda")
    with ikp.profile(args.out, force=True) as prof:
        NestedRegions(static=args.static)(from_dlpack(nested), prof.buffer("nested"))
        ProducerAndConsumer()(from_dlpack(pair), prof.buffer("producer and consumer"))
    torch.testing.assert_close(nested, torch.full_like(nested, 4))
    torch.testing.assert_close(pair, torch.full_like(pair, 2))
    prof.print_stats()
    print(f"wrote {args.out}: see it with `ikp view {args.out}`")


if __name__ == "__main__":
    main()
