"""Rows of growing length, two for each warp, and a barrier after each phase: neighbouring rows,
or a short one and a long one.
"""

import cutlass
import torch
from cutlass import Float32, Int32, cute, utils
from cutlass.cute.runtime import from_dlpack

import ikp
from tests.kernels.planted.case import SMS, Case, Take
from tests.kernels.planted.compiled import Compiled

LANGUAGE, EXPECTED = "CuTe DSL", "barrier skew"
WARPS, PHASES, STEP = 8, 24, 64
ROWS = 2 * WARPS
RATE = 2**-13  # 1 - RATE is a number of float32
Memory = getattr(cutlass, "memory", utils).SmemAllocator  # in utils before 4.8


@cute.jit
def relax(value: Float32, rounds: Int32):
    for _ in cutlass.range(rounds, unroll=8):
        value = value * Float32(1 - RATE) + Float32(RATE)
    return value


@cute.kernel
def phases(x: cute.Tensor, out: cute.Tensor, paired: cutlass.Constexpr, prof):
    """Relax each row for as long as its number says, then turn the rows around, PHASES times."""
    ikp.init(prof)
    memory = Memory()
    rows = memory.allocate_tensor(Float32, cute.make_layout((32, ROWS, 2)), byte_alignment=16)
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp, lane = cute.arch.make_warp_uniform(cute.arch.warp_idx()), thread % 32
    for half in cutlass.range_constexpr(2):
        row = 2 * warp + half
        rows[lane, row, 0] = x[lane, row, block]
    cute.arch.sync_threads()
    for phase in cutlass.range(PHASES, unroll=1):
        for half in cutlass.range_constexpr(2):
            row = 2 * warp + half
            if cutlass.const_expr(paired):
                row = warp if half == 0 else ROWS - 1 - warp
            with ikp.range("row", row):
                value = rows[lane, ROWS - 1 - row, phase % 2]
                rows[lane, row, (phase + 1) % 2] = relax(value, (row + 1) * STEP)
        with ikp.range("sync", phase):
            cute.arch.sync_threads()
    for half in cutlass.range_constexpr(2):
        row = 2 * warp + half
        out[lane, row, block] = rows[lane, row, PHASES % 2]
    ikp.finish()


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor, paired: cutlass.Constexpr, prof):
    blocks = cute.size(x, mode=[2])
    phases(x, out, paired, prof).launch(grid=[blocks, 1, 1], block=[32 * WARPS, 1, 1])


def prepare(faulty: bool) -> Case:
    x = torch.rand(SMS, ROWS, 32, device="cuda")
    out = torch.empty_like(x)
    expected = x.double()
    factors = (1 - RATE) ** (STEP * (1 + torch.arange(ROWS, device="cuda").double()))
    for _ in range(PHASES):
        expected = 1 + (expected.flip(1) - 1) * factors[:, None]
    operands = tuple(from_dlpack(each.permute(2, 1, 0)) for each in (x, out))
    function = Compiled(launch, operands, not faulty)

    def run(take: Take) -> None:
        function(take())

    return Case(run, out, expected, {"blocks": range(0, SMS, 33)})
