"""Calls to judge by: nothing of ikp was changed for the sake of one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as f

from benchmarks.calls import cuda
from benchmarks.calls.case import Case, c_functions, definitions, gate, heads, randn, same, source
from benchmarks.calls.spilling import spilling

TUTORIALS = ("triton", "python", "tutorials")
HALF, FLOAT = torch.float16, torch.float32


def _torch() -> dict[str, Callable[[], Case]]:
    """Return calls of torch's own kernels, and of cuBLAS and cuDNN through torch."""
    rows = torch.randint(0, 8192, (8192,))
    image = (32, 64, 56, 56)

    def attention(*each: torch.Tensor, backend: Any) -> torch.Tensor:
        with torch.nn.attention.sdpa_kernel(backend):
            return f.scaled_dot_product_attention(*each, is_causal=True)

    back = torch.nn.attention.SDPBackend
    qkv = [(4, 16, 2048, 64)] * 3
    mm = [(4096, 4096)] * 2
    made: dict[str, tuple[Callable[..., Any], Any]] = {
        "torch_softmax": (lambda x: x.softmax(-1), [(8192, 4096)]),
        "torch_gelu": (f.gelu, [(8192, 4096)]),
        "torch_sort": (lambda x: x.sort(-1)[0], [(4096, 1024)]),
        "torch_topk": (lambda x: x.topk(32)[0], [(1024, 16384)]),
        "torch_gather": (lambda x: x[rows.to(x.device)], [(8192, 4096)]),
        "torch_var": (lambda x: x.float().var(1), [(8192, 4096)]),
        "torch_argmax": (lambda x: x.argmax(1), [(8192, 4096)]),
        "torch_transpose": (lambda x: x.t().contiguous(), [(8192, 4096)]),
        "torch_max_pool": (lambda x: f.max_pool2d(x, 3, 2, 1), [image]),
        "torch_upsample": (lambda x: f.interpolate(x, scale_factor=2, mode="bilinear"), [image]),
        "torch_batch_norm": (lambda x: f.batch_norm(x, None, None, training=True), [image]),
        "torch_group_norm": (lambda x: f.group_norm(x, 32), [image]),
        "torch_cdist": (lambda a, b: torch.cdist(a.float(), b.float(), p=1.0), [(512, 64)] * 2),
        "cublas_mm": (torch.mm, mm),
        "cublas_mm_float": (lambda a, b: torch.mm(a.float(), b.float()), [(2048, 2048)] * 2),
        "cublas_bmm": (torch.bmm, [(64, 512, 512)] * 2),
        "cublas_mv": (torch.mv, [(8192, 8192), (8192,)]),
        "cudnn_conv_1x1": (f.conv2d, [image, (256, 64, 1, 1)]),
        "cudnn_conv_strided": (
            lambda x, w: f.conv2d(x, w, stride=2, padding=3),
            [(32, 8, 224, 224), (64, 8, 7, 7)],
        ),
        "cudnn_depthwise": (
            lambda x, w: f.conv2d(x, w, padding=1, groups=64),
            [image, (64, 1, 3, 3)],
        ),
        "cudnn_conv_transposed": (f.conv_transpose2d, [image, (64, 64, 4, 4)]),
        "torch_flash_attention": (partial(attention, backend=back.FLASH_ATTENTION), qkv),
        "torch_efficient_attention": (partial(attention, backend=back.EFFICIENT_ATTENTION), qkv),
        "torch_cross_entropy": (
            lambda x: f.cross_entropy(x.float(), rows.to(x.device)),
            [(8192, 8192)],
        ),
    }

    def case(call: Callable[..., Any], shapes: Any) -> Case:
        return same(*(randn(*shape) for shape in shapes)), call

    return {name: partial(case, *each) for name, each in made.items()}


def tutorial_softmax() -> Case:
    module = definitions(*TUTORIALS, "02-fused-softmax.py")
    return same(randn(8192, 2048, dtype=FLOAT)), module.softmax


def tutorial_dropout() -> Case:
    module = definitions(*TUTORIALS, "04-low-memory-dropout.py")
    return same(randn(1 << 24, dtype=FLOAT)), partial(module.seeded_dropout, p=0.5, seed=123)


def tutorial_persistent() -> Case:
    module = definitions(*TUTORIALS, "09-persistent-matmul.py")
    return same(
        randn(2048, 2048, dtype=HALF), randn(2048, 2048, dtype=HALF)
    ), module.matmul_persistent


def tutorial_attention(head: int = 64, causal: bool = True) -> Case:
    import triton

    module = definitions(*TUTORIALS, "06-fused-attention.py")
    q, k, v = (randn(4, 16, 2048, head, dtype=HALF) for _ in "qkv")

    def call(*each: torch.Tensor) -> torch.Tensor:
        module._attn_fwd.configs = [  # noqa: SLF001
            triton.Config(
                {"BLOCK_M": 128, "BLOCK_N": 64},
                num_stages=3,
                num_warps=4,
                pre_hook=module._host_descriptor_pre_hook,  # noqa: SLF001
            )
        ]
        return module.attention(*each, causal, 0.125, False)

    return same(q, k, v), call


def matmul_spills_more() -> Case:
    return spilling(256, 128, 32, stages=4)


def _liger() -> dict[str, Callable[[], Case]]:
    """Return calls of Liger Kernel's operators."""

    def case(module: str, name: str, *made: Any) -> Case:
        ops = __import__(f"liger_kernel.ops.{module}", fromlist=[name])
        arguments = [randn(*each) if isinstance(each, tuple) else each for each in made]
        return same(*arguments), getattr(ops, name).apply

    def distributions(module: str, name: str) -> Case:
        ops = __import__(f"liger_kernel.ops.{module}", fromlist=[name])
        p, q = (randn(4096, 8192, dtype=FLOAT).log_softmax(-1) for _ in "pq")
        return same(p, q.exp()), getattr(ops, name).apply

    wide, row = (8192, 4096), (4096,)
    named = {
        "liger_dyt": ("dyt", "LigerDyTFunction", wide, (1,), row, row),
        "liger_sparsemax": ("sparsemax", "LigerSparsemaxFunction", (4096, 4096), -1),
        "liger_relu_squared": ("relu_squared", "LigerReLUSquaredFunction", wide),
        "liger_poly_norm": ("poly_norm", "LigerPolyNormFunction", wide, (3,), (1,), 1e-6, False),
        "liger_add_rms_norm": (
            *("fused_add_rms_norm", "LigerFusedAddRMSNormFunction", wide, wide, row, 1e-6),
        ),
    }
    made: dict[str, Callable[[], Case]] = {
        name: partial(case, *each) for name, each in named.items()
    }
    made["liger_kl_div"] = partial(distributions, "kl_div", "LigerKLDivLossFunction")
    made["liger_tvd"] = partial(distributions, "tvd", "LigerTVDLossFunction")
    return made


def _fla() -> dict[str, Callable[[], Case]]:
    """Return calls of flash-linear-attention's operators."""

    def case(module: str, name: str, more: Callable[[], tuple[Any, ...]]) -> Case:
        call = getattr(__import__(f"fla.ops.{module}", fromlist=[name]), name)

        def first(*each: Any) -> Any:
            made = call(*each)
            return made[0] if isinstance(made, tuple) else made

        return same(*heads(), *more()), first

    def nothing() -> tuple[Any, ...]:
        return ()

    wide, beta = (2, 4096, 16, 128), (2, 4096, 16)
    named: dict[str, tuple[str, str, Callable[[], tuple[Any, ...]]]] = {
        "fla_attention": ("attn", "parallel_attn", nothing),
        "fla_lightning_attention": ("lightning_attn", "chunk_lightning_attn", lambda: (3, 12)),
        "fla_linear_attention": (
            *("linear_attn", "fused_chunk_linear_attn", lambda: (None, None, False, False)),
        ),
        "fla_rwkv6": ("rwkv6", "chunk_rwkv6", lambda: (gate(*wide).bfloat16(), randn(16, 128))),
        "fla_kda": ("kda", "chunk_kda", lambda: (gate(*wide), randn(*beta).sigmoid())),
        "fla_gsa": (
            "gsa",
            "chunk_gsa",
            lambda: (randn(2, 4096, 16, 64), gate(2, 4096, 16, 64).bfloat16()),
        ),
        "fla_comba": (
            *("comba", "chunk_comba"),
            lambda: (heads()[1], gate(*beta), randn(*beta).sigmoid()),
        ),
        "fla_recurrent_delta_rule": (
            *("delta_rule", "fused_recurrent_delta_rule", lambda: (randn(*beta).sigmoid(),)),
        ),
        "fla_parallel_retention": ("retention", "parallel_retention", nothing),
    }
    made: dict[str, Callable[[], Case]] = {
        name: partial(case, *each) for name, each in named.items()
    }

    def hgrn() -> Case:
        from fla.ops.hgrn import chunk_hgrn

        return same(randn(8, 2048, 1024), gate(8, 2048, 1024).bfloat16()), lambda *each: chunk_hgrn(
            *each
        )[0]

    return made | {"fla_hgrn": hgrn}


def _attorch() -> dict[str, Callable[[], Case]]:
    """Return calls of attorch's layers."""

    def case(layer: Callable[[Any], Any], *shapes: tuple[int, ...]) -> Case:
        import attorch

        return same(*(randn(*shape, dtype=FLOAT) for shape in shapes)), layer(attorch)

    wide = (8192, 2048)
    return {
        "attorch_gelu": partial(case, lambda module: module.GELU(), wide),
        "attorch_layer_norm": partial(case, lambda module: module.LayerNorm(2048).cuda(), wide),
        "attorch_mse": partial(case, lambda module: module.MSELoss(), wide, wide),
        "attorch_glu": partial(case, lambda module: module.GLU(), wide),
        "attorch_batch_norm": partial(
            case, lambda module: module.BatchNorm1d(2048).cuda().eval(), (8192, 2048)
        ),
    }


def _llm_c() -> dict[str, Callable[[], Case]]:
    """Return launches of llm.c's kernels, in CUDA C++."""

    def text(name: str, *functions: str) -> str:
        path = source("llm.c", "dev", "cuda", name)
        common = "#define INFINITY __int_as_float(0x7f800000)\nusing uint = unsigned int;\n"
        return common + 'extern "C" {\n' + c_functions(path, *functions) + "\n}"

    def softmax(kernel: str, helpers: tuple[str, ...], blocks: int, shared: int) -> Case:
        x, out = randn(8192, 4096, dtype=FLOAT), torch.zeros(8192, 4096, device="cuda")
        made = text("softmax_forward.cu", *helpers, kernel)
        run = cuda.launch(made, kernel, (blocks,), (256,), out, x, 8192, 4096, shared=shared)
        return same(), run

    def attention() -> Case:
        b, heads, length, size = 4, 8, 1024, 64
        q, k, v = (randn(b, heads, length, size, dtype=FLOAT) for _ in "qkv")
        out = torch.zeros_like(q)
        sums, most = (
            torch.zeros(b, heads, length).cuda(),
            torch.full((b, heads, length), -1e30).cuda(),
        )
        kernel, tile = "attention_forward_kernel2", 32
        rest = (q, k, v, length, size, length // tile, length // tile, tile, tile, 0.125)
        made = text("attention_forward.cu", kernel)
        shared = (3 * tile * size + tile * tile) * 4
        run = cuda.launch(
            *(made, kernel, (b, heads), (tile,), q, *rest[1:], sums, most, out), shared=shared
        )

        def call() -> tuple[torch.Tensor, ...]:
            sums.zero_()
            most.fill_(-1e30)
            run()
            return (out,)

        return same(), call

    def matmul() -> Case:
        rows, inner, columns = 4096, 1024, 4096
        x, w = randn(rows, inner, dtype=FLOAT), randn(columns, inner, dtype=FLOAT)
        bias, out = randn(columns, dtype=FLOAT), torch.zeros(rows, columns, device="cuda")
        made = text("matmul_forward.cu", "ld_vec", "st_vec", "matmul_forward_kernel4")
        grid, block = (rows // 128, columns // 128), (16, 16)
        return same(), cuda.launch(
            *(made, "matmul_forward_kernel4", grid, block, out, x, w, bias, inner, columns)
        )

    return {
        "llm_c_softmax": partial(softmax, "softmax_forward_online_kernel8", (), 1024, 0),
        "llm_c_softmax_shared": partial(
            softmax, "softmax_forward_kernel4", ("warpReduceMax", "warpReduceSum"), 8192, 64
        ),
        "llm_c_attention": attention,
        "llm_c_matmul": matmul,
    }


def _cupy() -> dict[str, Callable[[], Case]]:
    """Return calls of CuPy's kernels."""

    def case(call: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
        import cupy

        made = [cupy.asarray(randn(*shape, dtype=FLOAT)) for shape in shapes]
        return same(*made), lambda *each: torch.as_tensor(call(cupy, *each), device="cuda")

    wide = (4096, 4096)
    return {
        "cupy_elementwise": partial(case, lambda cp, x, y: cp.exp(x) * y + 1, wide, wide),
        "cupy_sum": partial(case, lambda _, x: x.sum(axis=1), wide),
        "cupy_sort": partial(case, lambda cp, x: cp.sort(x, axis=1), (1024, 4096)),
    }


def _jax() -> dict[str, Callable[[], Case]]:
    """Return calls that XLA compiles."""

    def case(call: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
        import jax

        made = [jax.dlpack.from_dlpack(randn(*shape)) for shape in shapes]
        compiled = jax.jit(partial(call, jax))

        def run(*each: Any) -> Any:
            return torch.from_dlpack(compiled(*each).block_until_ready())

        return same(*made), run

    return {
        "jax_matmul": partial(case, lambda _, a, b: a @ b, (2048, 2048), (2048, 2048)),
        "jax_softmax": partial(case, lambda jax, x: jax.nn.softmax(x, axis=-1), (8192, 4096)),
    }


CASES: dict[str, Callable[[], Case]] = {
    **_torch(),
    **{
        each.__name__: each
        for each in (
            *(tutorial_softmax, tutorial_dropout, tutorial_persistent, tutorial_attention),
            matmul_spills_more,
        )
    },
    **_liger(),
    **_fla(),
    **_attorch(),
    **_llm_c(),
    **_cupy(),
    **_jax(),
}
KERNELS: dict[str, str] = {
    "torch_softmax": "softmax",
    "torch_gelu": "elementwise",
    "torch_sort": "sort",
    "torch_topk": "topk|sort",
    "torch_gather": "index|gather",
    "torch_var": "reduce_kernel",
    "torch_argmax": "reduce_kernel",
    "torch_transpose": "elementwise|transpose",
    "torch_max_pool": "max_pool",
    "torch_upsample": "upsample",
    "torch_batch_norm": "batch_norm|bn_|cudnn",
    "torch_group_norm": "RowwiseMoments|GroupNorm",
    "torch_cdist": "cdist",
    "torch_flash_attention": "flash",
    "torch_efficient_attention": "fmha|attention",
    "torch_cross_entropy": "softmax|nll",
    **{name: "gemm|gemv|cutlass|nvjet|xmma" for name in _torch() if name.startswith("cublas")},
    **{name: "conv|xmma|cudnn|cutlass|prop" for name in _torch() if name.startswith("cudnn")},
    **dict.fromkeys((*_cupy(), *_jax()), "."),
}
"""Patterns of the kernels that are recorded, of libraries that are left alone otherwise."""
