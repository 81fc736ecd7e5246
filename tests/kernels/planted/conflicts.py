"""Turns tiles around in shared memory, whose rows are as long as there are banks, or longer."""

import cutlass
import torch
from cutlass import Float32, Int32, cute, utils
from cutlass.cute.runtime import from_dlpack

import ikp
from tests.kernels.planted.case import SMS, Case, Take
from tests.kernels.planted.compiled import Compiled

LANGUAGE, EXPECTED = "CuTe DSL", "bank conflicts"
WARPS, ROUNDS, SIDE = 8, 40, 32
RATE = 0.02
Memory = getattr(cutlass, "memory", utils).SmemAllocator  # in utils before 4.8


@cute.kernel
def turns(x: cute.Tensor, out: cute.Tensor, width: Int32, prof):
    """Turn each warp's tile around and relax it, ROUNDS times (an even number)."""
    ikp.init(prof)
    memory = Memory()
    room = cute.make_layout(WARPS * SIDE * (SIDE + 1))
    tiles = memory.allocate_tensor(Float32, room, byte_alignment=16)
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp, lane = cute.arch.make_warp_uniform(cute.arch.warp_idx()), thread % 32
    first = warp * SIDE * width
    values = cute.make_rmem_tensor((SIDE,), Float32)
    for k in cutlass.range_constexpr(SIDE):
        values[k] = x[lane, k, warp, block]
    for step in cutlass.range(ROUNDS, unroll=1):
        with ikp.range("exchange", step):
            for k in cutlass.range_constexpr(SIDE):
                tiles[first + k * width + lane] = values[k]
            cute.arch.sync_warp()
            for k in cutlass.range_constexpr(SIDE):
                values[k] = tiles[first + lane * width + k]
            cute.arch.sync_warp()
        with ikp.range("mix", step):
            for k in cutlass.range_constexpr(SIDE):
                values[k] = values[k] * Float32(1 - RATE) + Float32(RATE)
    with ikp.range("store"):
        for k in cutlass.range_constexpr(SIDE):
            out[lane, k, warp, block] = values[k]
    ikp.finish()


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor, width: Int32, prof):
    blocks = cute.size(x, mode=[3])
    turns(x, out, width, prof).launch(grid=[blocks, 1, 1], block=[32 * WARPS, 1, 1])


def prepare(faulty: bool) -> Case:
    x = torch.rand(SMS, WARPS, SIDE, SIDE, device="cuda")
    out = torch.empty_like(x)
    expected = 1 + (x.double() - 1) * (1 - RATE) ** ROUNDS
    operands = (from_dlpack(each.permute(3, 2, 1, 0)) for each in (x, out))
    function = Compiled(launch, (*operands, SIDE if faulty else SIDE + 1))

    def run(take: Take) -> None:
        function(take())

    return Case(run, out, expected, {"warps": [0, 1], "blocks": range(0, SMS, 16)})
