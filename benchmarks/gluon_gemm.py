"""What recording costs in a warp-specialised GEMM: examples/gemm_gluon.py, on and off in turn.

    python benchmarks/gluon_gemm.py [--rounds N] [--depth K] [--trace FILE.pftrace]

Each figure is the median over rounds of (kernel with records) / (kernel with None, whose machine
code is that of the kernel without ikp, launched just before it). Four ranges per tile step in all.
Prints a Markdown table. Needs a GPU of compute capability 9.0.
"""

import argparse
import sys
from pathlib import Path

import torch
import triton
from ratios import Row, pairs, table

import ikp

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import gemm_gluon as example

SIZE = 4096
WARM_UP = 10
VARIANTS = {
    "ikp": {},
    "ikp, not scheduled": {"schedule": False},
    "ikp, ring": {"overflow": "wrap"},
}


class Gemm:
    """Operands of SIZE x depth x SIZE, and the launcher."""

    def __init__(self, depth: int) -> None:
        torch.manual_seed(0)
        self.depth = depth
        self.a = torch.randn(SIZE, depth, device="cuda").half()
        self.b = torch.randn(depth, SIZE, device="cuda").half()
        self.c = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.float16)
        self.left = example.tiles(self.a, [example.BM, example.BK])
        self.right = example.tiles(self.b, [example.BK, example.BN])

    def launch(self, prof: object = None) -> None:
        grid = (SIZE // example.BM, SIZE // example.BN)
        operands = (self.left, self.right, self.c, SIZE, self.depth)
        example.gemm[grid](*operands, prof, example.STAGES, num_warps=example.WARPS)

    def check(self) -> None:
        reference = self.a.float() @ self.b.float()
        error = (self.c.float() - reference).norm() / reference.norm()
        if not error < 1e-3:
            sys.exit(f"the instrumented GEMM is wrong: relative error {error:.1e}")


def row(gemm: Gemm, name: str, rounds: int, options: dict[str, object]) -> Row:
    with ikp.profile(buffer_size=256 << 20, **options) as prof:
        buffer = prof.buffer("gemm")
        for _ in range(WARM_UP):
            gemm.launch()
        gemm.launch(buffer)
        gemm.check()
        ratios, plain = pairs(gemm.launch, lambda: gemm.launch(buffer), rounds, "gemm")
        launch, slots = prof.trace.launches[0], prof.trace.slots
        prof.reset()
    kept = f"{launch.kept:,} of {launch.attempted:,} ranges, up to {slots.kept.max()} per warp"
    return Row(name, ratios, plain, kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--depth", type=int, default=16384, help="K, a multiple of 64")
    parser.add_argument("--trace", help="write the trace of one launch")
    args = parser.parse_args()
    gemm = Gemm(args.depth)
    gemm.launch()
    ratios, plain = pairs(gemm.launch, gemm.launch, args.rounds, "gemm")
    rows = [Row("plain against itself", ratios, plain, "")]
    rows += [row(gemm, name, args.rounds, options) for name, options in VARIANTS.items()]
    print(
        f"{torch.cuda.get_device_name()}, triton {triton.__version__}, torch {torch.__version__}, "
        f"ikp {ikp.__version__}, {SIZE} x {args.depth} x {SIZE}, {args.rounds} pairs each\n"
    )
    print(table(rows))
    if args.trace:
        with ikp.profile(args.trace, force=True, buffer_size=256 << 20) as prof:
            gemm.launch(prof.buffer("gemm"))


if __name__ == "__main__":
    main()
