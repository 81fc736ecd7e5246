"""What `ikp run` costs kernels of libraries, as they are, and whether their results stay the same.

    PYTHONPATH=LIBRARIES python benchmarks/libraries.py [--only liger_rms_norm,...] [--rounds 12]

Calls of Liger Kernel, flash-linear-attention, mamba-ssm, QuACK and FlashAttention's CuTe forward,
whose sources are to be importable; what can't be imported is told. Of each case, a plain process
and one under `ikp run --level machine` for each detail, one after another: the hash of all results,
and what a call takes by events, the L2 cache flushed before it. Prints a Markdown table: ratios
to the plain process's median (quartiles).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Case = tuple[Callable[[], tuple[Any, ...]], Callable[..., tuple[Any, ...]]]
"""What makes the arguments of a call, and the call, which returns its results."""
DETAILS = ("loops", "waits", "ops")
LIMIT = 300
"""Seconds for a process."""


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def same(*tensors: torch.Tensor) -> Callable[[], tuple[Any, ...]]:
    return lambda: tensors


def liger_rms_norm() -> Case:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction as Norm

    def call(x, w):
        return (Norm.apply(x, w, 1e-6, 0.0, "llama", False, None),)

    return same(randn(8192, 4096), randn(4096)), call


def liger_layer_norm() -> Case:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction as Norm

    def call(x, w, b):
        return (Norm.apply(x, w, b, 1e-6),)

    return same(randn(8192, 4096), randn(4096), randn(4096)), call


def liger_rope() -> Case:
    """Works in place, on what transformers hands over: heads and positions changed about."""
    from liger_kernel.ops.rope import LigerRopeFunction as Rope

    q, k = randn(4, 2048, 32, 128), randn(4, 2048, 8, 128)
    cos, sin = randn(1, 2048, 128), randn(1, 2048, 128)

    def fresh():
        return q.clone().transpose(1, 2), k.clone().transpose(1, 2), cos, sin

    return fresh, Rope.apply


def liger_swiglu() -> Case:
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction as Swiglu

    return same(randn(4096, 11008), randn(4096, 11008)), lambda a, b: (Swiglu.apply(a, b),)


def liger_softmax() -> Case:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction as Softmax

    return same(randn(8192, 4096)), lambda x: (Softmax.apply(x),)


def liger_cross_entropy() -> Case:
    """Writes the gradient into its input."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction as Loss

    x, target = randn(4096, 16384), torch.randint(0, 16384, (4096,), device="cuda")

    def call(x):
        x.requires_grad_()
        return Loss.apply(x, target, None)[0].detach(), x.detach()

    return lambda: (x.clone(),), call


def heads(batch: int = 2, length: int = 4096) -> tuple[torch.Tensor, ...]:
    q, k, v = (randn(batch, length, 16, 128) for _ in "qkv")
    return q, torch.nn.functional.normalize(k.float(), dim=-1).to(k.dtype), v


def gate(*shape: int) -> torch.Tensor:
    return torch.nn.functional.logsigmoid(randn(*shape, dtype=torch.float32))


def fla_chunk_gla() -> Case:
    from fla.ops.gla import chunk_gla

    g = gate(2, 4096, 16, 128).bfloat16()
    return same(*heads(), g), lambda *each: chunk_gla(*each)[:1]


def fla_gated_delta_rule() -> Case:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    beta = randn(2, 4096, 16).sigmoid()
    return same(*heads(), gate(2, 4096, 16), beta), lambda *each: chunk_gated_delta_rule(*each)[:1]


def fla_fused_recurrent_gla() -> Case:
    from fla.ops.gla import fused_recurrent_gla

    g = gate(8, 512, 16, 128).bfloat16()
    return same(*heads(8, 512), g), lambda *each: fused_recurrent_gla(*each)[:1]


def fla_rms_norm_gated() -> Case:
    from fla.modules.fused_norm_gate import rms_norm_gated

    x, g, w = randn(8192, 32, 128), randn(8192, 32, 128), randn(128)
    return same(x, g, w), lambda x, g, w: (rms_norm_gated(x, g, w, None),)


def mamba_ssd() -> Case:
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    x, dt = randn(2, 4096, 32, 64), randn(2, 4096, 32).abs() * 0.1
    a = -randn(32, dtype=torch.float32).abs()
    b, c = randn(2, 4096, 1, 128), randn(2, 4096, 1, 128)
    return same(x, dt, a, b, c), lambda *each: (mamba_chunk_scan_combined(*each, 256),)


def quack_rmsnorm() -> Case:
    from quack.rmsnorm import rmsnorm_fwd

    x, w = randn(8192, 4096), randn(4096, dtype=torch.float32)
    return same(x, w), lambda x, w: rmsnorm_fwd(x, w)[:1]


def quack_softmax() -> Case:
    from quack.softmax import softmax_fwd

    return same(randn(8192, 4096)), lambda x: (softmax_fwd(x),)


def quack_gemm() -> Case:
    from quack.gemm_interface import gemm

    a, b = randn(4096, 4096), randn(4096, 4096)
    return same(a, b.t()), lambda a, b: (gemm(a, b, tuned=False),)


def attention(causal: bool) -> Case:
    from flash_attn.cute.interface import flash_attn_func

    def call(q, k, v):
        made = flash_attn_func(q, k, v, causal=causal, return_lse=True)
        return tuple(each for each in made if each is not None)

    return same(*(randn(4, 4096, 8, 128) for _ in "qkv")), call


CASES: dict[str, Callable[[], Case]] = {
    each.__name__: each
    for each in (
        *(liger_rms_norm, liger_layer_norm, liger_rope, liger_swiglu, liger_softmax),
        *(liger_cross_entropy, fla_chunk_gla, fla_gated_delta_rule, fla_fused_recurrent_gla),
        *(fla_rms_norm_gated, mamba_ssd, quack_rmsnorm, quack_softmax, quack_gemm),
    )
} | {"fa_causal": lambda: attention(True), "fa_full": lambda: attention(False)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", help="names of cases, with commas between them")
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--child", help=argparse.SUPPRESS)
    options.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.child:
        arguments.out.write_text(json.dumps(measured(CASES[arguments.child], arguments.rounds)))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # a trace of so many launches is not wanted
    print(
        "| call | plain, us | bits | loops | waits | ops |\n| --- | --- | --- | --- | --- | --- |"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only.split(",") if arguments.only else CASES:
            row(name, arguments.rounds, Path(folder))


def row(name: str, rounds: int, folder: Path) -> None:
    """Print what a case took at each detail."""
    plain = child(name, rounds, folder)
    if isinstance(plain, str):
        print(f"| {name} | failed: {plain} |", flush=True)
        return
    cells, bits = [], []
    for detail in DETAILS:
        found = child(name, rounds, folder, detail)
        if isinstance(found, str):
            cells.append(f"failed: {found}")
            bits.append("?")
            continue
        bits.append("=" if found["hash"] == plain["hash"] else "DIFFER")
        low, middle, high = (each / plain["us"][1] for each in found["us"])
        late = f", {found['late']} late" if found["late"] else ""
        cells.append(f"{middle:.3f} ({low:.3f} to {high:.3f}{late})")
    steady = "" if plain["steady"] else ", plain differs from itself"
    print(
        f"| {name} | {plain['us'][1]:.1f} | {'/'.join(bits)}{steady} | {' | '.join(cells)} |",
        flush=True,
    )


def child(name: str, rounds: int, folder: Path, detail: str | None = None) -> dict[str, Any] | str:
    """Measure a case in a process of its own; return what was found, or the end of what it said."""
    out = folder / "found.json"
    out.unlink(missing_ok=True)
    under = [
        "-m",
        "ikp",
        "run",
        "--level",
        "machine",
        "--force",
        "--out",
        str(folder / "x.pftrace"),
    ]
    words = [] if detail is None else [*under, "--memory", "30000", "--detail", detail]
    command = [sys.executable, *words, __file__, "--child", name, "--out", str(out)]
    try:
        ran = subprocess.run(
            [*command, "--rounds", str(rounds)],
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env={**os.environ, "TRITON_CACHE_AUTOTUNING": "1", "CUTE_DSL_LINEINFO": "1"},
        )
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT} s"
    if not out.exists():
        return " ".join(ran.stderr.split())[-200:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def measured(case: Callable[[], Case], rounds: int) -> dict[str, Any]:
    """Return the hash of a case's results, and the quartiles of what a call took, in us."""
    torch.manual_seed(0)
    fresh, call = case()
    call(*fresh())  # compiles, and tunes
    hashes = {digest(call(*fresh())) for _ in range(3)}
    flush = torch.empty(1 << 29, dtype=torch.int8, device="cuda")
    took, late = [], 0
    for _ in range(rounds + 2):
        arguments = fresh()
        torch.cuda.synchronize()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(16):  # longer than the host takes for the call
            flush.zero_()
        before.record()
        call(*arguments)
        after.record()
        late += before.query()
        torch.cuda.synchronize()
        took.append(before.elapsed_time(after) * 1000)
    return {
        "hash": min(hashes),
        "steady": len(hashes) == 1,
        "us": statistics.quantiles(took[2:], n=4),
        "late": late,
    }


def digest(tensors: tuple[torch.Tensor, ...]) -> str:
    made = hashlib.blake2b(digest_size=8)
    for each in tensors:
        flat = each.detach().contiguous().reshape(-1)
        made.update(flat.view(torch.uint8).cpu().numpy().tobytes())
    return made.hexdigest()


if __name__ == "__main__":
    main()
