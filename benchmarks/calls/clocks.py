"""Kernels of libraries with clock reads written into their text, beside the kernels as they are.

No kernel was recorded by ikp before it came here. What is changed of a text: a last argument, reads
of ``clock`` around loops and barriers, and stores of what a warp took.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.calls.case import c_functions, randn, source

PLACES = 8
"""Cells of a warp, or of a block of Triton's, whose first warp alone stores."""
FLOAT = torch.float32
Edit = tuple[str, str]
"""A text, and what stands in its place. Each is looked for behind the one before."""
Launch = Callable[[], Any]


@dataclass(frozen=True)
class Timed:
    """A kernel that is launched as it is, or with clock reads.

    Attributes:
        label: what its label in a trace begins with.
        library: whose it is, with the commit.
        places: what stands between the clock reads of each cell: the kind of range, and its line.
        launch: makes a launch; with cells if clocks are to be read.
        first_warp: whether only the first warp of a block stores what it took.
    """

    label: str
    library: str
    places: tuple[tuple[str, int], ...]
    launch: Callable[[torch.Tensor | None], Launch]
    first_warp: bool = False


def replaced(text: str, edits: list[Edit]) -> str:
    """Return a text with edits, each made once, in the text's order."""
    at = 0
    for old, new in edits:
        found = text.index(old, at)
        text = text[:found] + new + text[found + len(old) :]
        at = found + len(new)
    return text


# --- CUDA C++


def timed(cell: int, first: str, last: str) -> list[Edit]:
    """Return the edits that read the clock before one text and behind another."""
    begun, ended = "ikp_from = clock();", f"ikp_{cell} += clock() - ikp_from;"
    return [(first, f"{begun} {first}"), (last, f"{last} {ended}")]


def barrier(cell: int) -> Edit:
    """Return the edit that times a barrier.

    A store to shared memory stands behind it: the clock right behind a barrier is read before the
    warp has waited (decision 92). A load would do, too, but ptxas gives it the register of the
    clock, which is then read when the load has returned (decision 262).
    """
    read, added = "unsigned ikp_at = clock();", f"ikp_{cell} += clock() - ikp_at;"
    plain = "__syncthreads();"
    store = 'asm volatile("st.shared.u32 [%0], 0;" :: "r"(ikp_word) : "memory");'
    return plain, f"{{ {read} {plain} {store} {added} }}"


def stored(cells: int, before: str) -> Edit:
    """Return the edit that stores what a warp took, before a text."""
    stores = " ".join(f"ikp_cells[{each}] = ikp_{each};" for each in range(cells))
    return before, f"if (ikp_thread % 32 == 0) {{ {stores} }} {before}"


def cuda(
    parts: tuple[str, ...],
    kernel: str,
    edits: list[Edit],
    before: str,
    cells: torch.Tensor | None,
    grid: tuple[int, int],
    block: tuple[int, int],
    args: tuple[Any, ...],
) -> Launch:
    """Return a launch of a kernel in CUDA C++.

    Args:
        parts: its file in the checkouts.
        kernel: its name.
        edits: what puts clock reads into it.
        before: definitions that its text needs.
        cells: where the reads go, or None for the kernel as it is.
        grid: blocks.
        block: threads.
        args: its own arguments.
    """
    text = re.sub(r"^template.*\n", "", c_functions(source(*parts), kernel))
    if cells is not None:
        zeros = " ".join(f"unsigned ikp_{each} = 0;" for each in range(3))
        setup = (
            "int ikp_thread = threadIdx.x + blockDim.x * threadIdx.y; unsigned ikp_from = 0; "
            "__shared__ uint4 ikp_shared; "  # its own arrays stay as aligned as they were
            "unsigned ikp_word = (unsigned)__cvta_generic_to_shared(&ikp_shared); "
            'asm volatile("" : "+r"(ikp_word)); '
            f"unsigned* ikp_cells = ikp_hand + {PLACES} * ((blockIdx.x + gridDim.x * blockIdx.y) * "
            f"(blockDim.x * blockDim.y / 32) + ikp_thread / 32); {zeros} "
        )
        text = re.sub(r"\)\s*\{", f", unsigned* ikp_hand) {{ {setup}", text, count=1)
        text, args = replaced(text, edits), (*args, cells)
    common = (
        "#define INFINITY __int_as_float(0x7f800000)\n#define assert(x)\n"
        f"using uint = unsigned int;\n{before}\n"
    )
    whole = f'{common}extern "C" {{\n{text}\n}}'
    made = torch.cuda._compile_kernel(whole, kernel, nvcc_options=["-lineinfo"])  # type: ignore[attr-defined]  # noqa: SLF001
    return lambda: made(grid=(*grid, 1), block=(*block, 1), args=args)


def softmax(cells: torch.Tensor | None) -> Launch:
    x = randn(8192, 4096, dtype=FLOAT)
    loop = "for (int i = laneId; i < C; i += warpSize)"
    edits = [
        *timed(0, loop, "maxval = bigger;\n    }"),
        *timed(1, "for (int offset", "sumval += offsetSumval;\n    }"),
        *timed(2, loop, "/ sumval;\n    }"),
        stored(3, "\n}"),
    ]
    where = ("llm.c", "dev", "cuda", "softmax_forward.cu")
    args = (torch.empty_like(x), x, *x.shape)
    return cuda(
        where, "softmax_forward_online_kernel8", edits, "", cells, (1024, 1), (256, 1), args
    )


def sgemm(cells: torch.Tensor | None) -> Launch:
    size = 1024
    a, b, c = (randn(size, size, dtype=FLOAT) for _ in "abc")
    first, end = "for (uint bkIdx", "// write out the results"
    edits = [
        (first, f"ikp_from = clock(); {first}"),
        barrier(1),
        barrier(2),
        (end, f"ikp_0 = clock() - ikp_from;\n{end}"),
        stored(3, "for (uint resIdx"),
    ]
    sizes = "constexpr int BM = 64, BN = 64, BK = 8, TM = 8;"
    where = ("SGEMM_CUDA", "src", "kernels", "4_kernel_1D_blocktiling.cuh")
    args = (size, size, size, 1.0, a, b, 0.0, c)
    return cuda(
        where, "sgemm1DBlocktiling", edits, sizes, cells, (size // 64, size // 64), (512, 1), args
    )


def distances(cells: torch.Tensor | None) -> Launch:
    width, height = 1024, 512
    ref, query = (randn(height, width, dtype=FLOAT) for _ in "rq")
    first, end = "for (int a = begin_A", "// Write the block"
    edits = [
        (first, f"ikp_from = clock(); {first}"),
        barrier(1),
        barrier(2),
        (end, f"ikp_0 = clock() - ikp_from;\n{end}"),
        stored(3, "if (cond2 && cond1) {"),
    ]
    where = ("kNN-CUDA", "code", "knncuda.cu")
    args = (ref, width, width, query, width, width, height, torch.empty(width, width).cuda())
    return cuda(
        where,
        "compute_distances",
        edits,
        "#define BLOCK_DIM 16",
        cells,
        (width // 16, width // 16),
        (16, 16),
        args,
    )


# --- Triton

_CLOCK = """

@triton.jit
def ikp_clock():
    return tl.inline_asm_elementwise(
        "mov.u32 $0, %clock;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def ikp_store(hand, cell: tl.constexpr, value):
    at = tl.program_id(0) + tl.num_programs(0) * (
        tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
    tl.store(hand + at * 8 + cell, value)

"""
_MODULES = "import triton.language as tl\n"


def module(parts: tuple[str, ...], edits: list[Edit] | None) -> ModuleType:
    """Import a file of the checkouts, with clock reads if edits are given."""
    text = source(*parts).read_text()
    if edits is not None:
        text = replaced(text, [(_MODULES, _MODULES + _CLOCK), *edits])
    made = Path(tempfile.mkdtemp()) / parts[-1]
    made.write_text(text)
    spec = importlib.util.spec_from_file_location(made.stem, made)
    if spec is None or spec.loader is None:
        raise ImportError(made)
    found = importlib.util.module_from_spec(spec)
    sys.modules[made.stem] = found
    spec.loader.exec_module(found)
    return found


_TRITON = ("S-LoRA", "slora", "models", "llama", "triton_kernel")


def attention(cells: torch.Tensor | None) -> Launch:
    batch, heads, length, size = 2, 16, 2048, 64
    q, k, v, out = (randn(batch * length, heads, size, dtype=torch.float16) for _ in "qkvo")
    loop, end, indent = "for start_n in range(", "# initialize pointers to output\n", "        "
    args, given = "stride_od,\n", "o.stride(2),\n"
    edits = [
        (args, f"{args}{indent}hand,\n"),
        (loop, f"ikp_from = ikp_clock()\n{indent}{loop}"),
        (end, f"ikp_store(hand, 0, ikp_clock() - ikp_from)\n{indent}{end}"),
        (given, f"{given}{indent}    HAND,\n"),
    ]
    made = module(
        (*_TRITON, "context_flashattention_nopad.py"), edits if cells is not None else None
    )
    made.HAND = cells  # type: ignore[attr-defined]
    starts = torch.arange(batch, device="cuda", dtype=torch.int32) * length
    lengths = torch.full_like(starts, length)
    return lambda: made.context_attention_fwd(q, k, v, out, starts, lengths, length)


def rms_norm(cells: torch.Tensor | None) -> Launch:
    rows, columns = 4096, 8192
    x, weight = randn(rows, columns, dtype=torch.float16), randn(columns, dtype=torch.float16)
    loop, args, begin = "for off in range(", "eps,  #", "    ikp_from = ikp_clock()\n"
    first, end = "    var = tl.sum(", "\n\ndef rmsnorm_forward"
    store = "    ikp_store(hand, {}, ikp_clock() - ikp_from)\n"
    edits = [
        (args, f"hand,\n    {args}"),
        (f"    {loop}", f"{begin}    {loop}"),
        (first, f"{store.format(0)}{first}"),
        (f"    {loop}", f"{begin}    {loop}"),
        (end, f"{store.format(1)}{end}"),
    ]
    made = module((*_TRITON, "rmsnorm.py"), edits if cells is not None else None)
    out, hand = torch.empty_like(x), () if cells is None else (cells,)
    kernel = made._rms_norm_fwd_fused  # noqa: SLF001
    operands = (x, out, weight, columns, columns, *hand, 1e-6)
    return lambda: kernel[(rows,)](*operands, BLOCK_SIZE=512, num_warps=4)


KERNELS = (
    Timed(
        "softmax_forward_online_kernel8",
        "llm.c f1e2ace",
        (("loop", 32), ("loop", 43), ("loop", 61)),
        softmax,
    ),
    Timed(
        "sgemm1DBlocktiling",
        "SGEMM_CUDA 60cba6f",
        (("loop", 44), ("barrier", 48), ("barrier", 64)),
        sgemm,
    ),
    Timed(
        "compute_distances",
        "kNN-CUDA d135b79",
        (("loop", 46), ("barrier", 59), ("barrier", 70)),
        distances,
    ),
    Timed("_fwd_kernel", "S-LoRA c1ddf48", (("loop", 49),), attention, first_warp=True),
    Timed("_rms_norm", "S-LoRA c1ddf48", (("loop", 23), ("loop", 30)), rms_norm, first_warp=True),
)
