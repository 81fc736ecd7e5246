"""A basic-block counter: how often threads enter each basic block of a kernel that is compiled.

``count_blocks`` rewrites a cubin with ``ikp.sass``; see docs/rewriting-a-cubin.md. As a program, it
compiles PTX, runs it with counters, and prints them (a GPU of sm_90, and torch).
"""

from __future__ import annotations

from ikp import sass

CELL = "block_counters"


def count_blocks(code: bytes, name: str) -> tuple[bytes, list[str]]:
    """Return the cubin with a counter in each block, and each block's first instruction.

    The host writes the counters' address, of 32 bits each, to the symbol ``CELL``.
    """
    cubin = sass.Cubin.read(code)
    (found,) = (each for each in sass.read(code) if each.flow.code.name == name)
    chip, count = sass.chip_of(cubin.sm, cubin.kernel(name)), cubin.kernel(name).registers + 4
    sass.set_registers(cubin, name, count)
    free, cell = sass.FreeRegisters(found, count - sass.RESERVED), sass.add_constant(cubin, CELL, 8)
    graph, instructions, added = found.flow.graph, found.flow.code.instructions, []
    blocks = [each for each in map(graph.blocks.__getitem__, graph.order) if each.first < each.end]
    for number, block in enumerate(blocks):
        spare = free.at(block.first)
        pair, scoreboard, uniform = spare.pairs[-1], spare.scoreboards[-1], spare.uniform_registers
        one = next(each for each in spare.registers if each // 2 != pair // 2)
        memory = next(
            each for each in uniform if each > 3 and each % 2 == 0 and each + 1 in uniform
        )
        steps = [
            sass.forms.load_constant(pair, 3, cell, pair=True),
            sass.forms.constant(memory, 0, 0x208, pair=True),  # what global memory is
            sass.forms.immediate(one, 1),
            sass.forms.count_up(pair, 4 * number, one, memory),
            sass.NOP.after(1 << scoreboard),  # the addition has read its registers
        ]
        words = sass.assemble(chip.fitted(steps), scoreboard)
        added.append(sass.Insertion(block.first, tuple(words)))
    sass.insert(cubin, name, added)
    return cubin.write(), [instructions[each.first].text for each in blocks]


PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry turns(.param .u64 out, .param .u32 n) {
 .reg .u64 a; .reg .u32 r<4>; .reg .pred p;
 ld.param.u64 a, [out]; ld.param.u32 r0, [n]; mov.u32 r1, 0;
LOOP:
 .pragma "nounroll";
 st.volatile.global.u32 [a], r1;
 add.u32 r1, r1, 1; setp.lt.u32 p, r1, r0; @p bra LOOP;
 st.volatile.global.u32 [a], r1;
 ret;
}
"""


def main() -> None:
    """Run the kernel with counters, and print them."""
    import ctypes

    import torch

    from ikp.sass.disassembly.tools import assemble

    code, firsts = count_blocks(assemble(PTX, "PTX"), "turns")
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    counters = torch.zeros(len(firsts), dtype=torch.int32, device="cuda")
    driver, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    cell, size = ctypes.c_uint64(), ctypes.c_size_t()

    def checked(status: int) -> None:
        if status:
            raise RuntimeError(f"the driver says {status}")

    checked(driver.cuModuleLoadData(ctypes.byref(module), code))
    checked(driver.cuModuleGetFunction(ctypes.byref(function), module, b"turns"))
    of_cell = (ctypes.byref(cell), ctypes.byref(size), module, CELL.encode())
    checked(driver.cuModuleGetGlobal_v2(*of_cell))
    address = ctypes.c_uint64(counters.data_ptr())
    checked(driver.cuMemcpyHtoD_v2(cell, ctypes.byref(address), ctypes.c_size_t(8)))
    values = ctypes.c_uint64(out.data_ptr()), ctypes.c_uint32(7)
    passed = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in values))
    checked(driver.cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, None, passed, None))
    torch.cuda.synchronize()
    for count, first in zip(counters.tolist(), firsts, strict=True):
        print(f"{count:6}  {first}")


if __name__ == "__main__":
    main()
