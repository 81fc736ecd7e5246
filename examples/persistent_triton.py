"""A persistent kernel in Triton: every block takes tile after tile, and some have one more.

Run: ``python examples/persistent_triton.py [persistent.pftrace]``. The trace shows the waves (the
payload of "tile" is its number) and the tail: blocks that have finished while others work on the
last tiles. Without a GPU it runs in Triton's interpreter.
"""

import os
import sys
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported

import triton
import triton.language as tl

import ikp


@triton.jit
def scale_tiles(x, out, tiles, prof, WAVES: tl.constexpr, TILE: tl.constexpr):
    """Write out = 2 * x, tile by tile. x, out: [tiles, TILE]; WAVES: tiles per block, at most."""
    ikp.init(prof)
    for wave in range(WAVES):
        tile = wave * tl.num_programs(0) + tl.program_id(0)
        if tile < tiles:
            with ikp.range("tile", tile):
                at = tile * TILE + tl.arange(0, TILE)
                with ikp.range("load"):
                    values = tl.load(x + at)
                with ikp.range("store"):
                    tl.store(out + at, values * 2)
    ikp.instant("block done")


def main(path: Path) -> None:
    """Profile one launch, check its result, and write the trace."""
    on_gpu = torch.cuda.is_available() and not triton.knobs.runtime.interpret
    device = "cuda" if on_gpu else "cpu"
    blocks = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 4
    tiles = blocks * 7 + blocks // 4  # seven full waves, and a tail
    x = torch.randn(tiles, 4096 if on_gpu else 128, device=device)
    out = torch.empty_like(x)
    with ikp.profile(path, force=True) as prof:
        buffer = prof.buffer("scale_tiles")
        waves = triton.cdiv(tiles, blocks)
        scale_tiles[(blocks,)](x, out, tiles, buffer, WAVES=waves, TILE=x.shape[1])
    torch.testing.assert_close(out, x * 2)
    print(prof.trace.stats())
    print(f"wrote {path}: see it with `ikp view {path}`")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "persistent.pftrace"))
