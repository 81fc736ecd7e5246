"""What `ikp run` costs kernels of libraries, as they are, and whether their results stay the same.

    PYTHONPATH=LIBRARIES python benchmarks/libraries.py [--only liger_rms_norm,...] [--rounds 30]
                                                        [--sample 1] [--blocks ::7]

Calls of Liger Kernel, flash-linear-attention, mamba-ssm, QuACK and FlashAttention's CuTe forward,
whose sources are to be importable; what can't be imported is told. Each case has a process for each
detail under `ikp run --level machine`, in which recording is switched on and off. Processes start
side by side; who times has the GPU for itself. Prints a Markdown table:
whether results are equal bit for bit, and ratios of what a call takes to the plain call right
before it, by events, the L2 cache flushed: median (quartiles). "late" are those that the host was
too slow for. Where a launch was not recorded, it says so, and why, and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from switch import Switch

Case = tuple[Callable[[], tuple[Any, ...]], Callable[..., tuple[Any, ...]]]
"""What makes the arguments of a call, and the call, which returns its results."""
DETAILS = ("loops", "waits", "ops")
LIMIT = 600
"""Seconds for a process, with what it waits for others."""


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
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1))
    options.add_argument("--blocks", default="", help="which record, as `ikp run` takes them")
    options.add_argument("--sample", default="", help="or one in how many; 1 for all")
    options.add_argument("--child", help=argparse.SUPPRESS)
    options.add_argument("--detail", help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.child:
        told = measured(CASES[asked.child], asked.detail, asked.rounds, asked.folder / "lock")
        (asked.folder / f"{asked.child}.{asked.detail}.json").write_text(json.dumps(told))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # a trace of so many launches is not wanted
    print(f"| call | plain, us | bits | {' | '.join(DETAILS)} |\n|{' --- |' * 6}", flush=True)
    names, wrong = asked.only.split(",") if asked.only else list(CASES), False
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(asked.jobs) as pool:
        chosen = [("--blocks", asked.blocks), ("--sample", asked.sample)]
        chosen = [word for option in chosen if option[1] for word in option]
        measure = partial(child, rounds=asked.rounds, chosen=chosen, folder=Path(name))
        for row in pool.map(measure, names):
            print(row, flush=True)
            wrong |= "NOT RECORDED" in row or "DIFFER" in row
    sys.exit(wrong)


def child(name: str, rounds: int, chosen: list[str], folder: Path) -> str:
    """Measure a case in a process for each detail; return its row."""
    every = [in_process(name, detail, rounds, chosen, folder) for detail in DETAILS]
    if why := next((each for each in every if isinstance(each, str)), ""):
        return f"| {name} | failed: {why} |"
    made = [each for each in every if not isinstance(each, str)]
    us = statistics.median(each["us"] for each in made)
    bits, cells = "/".join(each["bits"] for each in made), [each["cell"] for each in made]
    return f"| {name} | {us:.1f} | {bits} | {' | '.join(cells)} |"


def in_process(
    name: str, detail: str, rounds: int, chosen: list[str], folder: Path
) -> dict[str, Any] | str:
    """Return what a process measures of a case at a detail, or why it does not."""
    trace = f"{folder}/{name}.{detail}.pftrace"
    ikp = f"-m ikp run --level machine --memory 30000 --out {trace}".split()
    own = f"--child {name} --detail {detail} --folder {folder} --rounds {rounds}".split()
    command = [sys.executable, *ikp, *chosen, __file__, *own]
    how: Any = {"capture_output": True, "text": True, "timeout": LIMIT}
    try:
        ran = subprocess.run(
            command, check=False, env={**os.environ, "CUTE_DSL_LINEINFO": "1"}, **how
        )
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT} s"
    made = folder / f"{name}.{detail}.json"
    if not made.exists():
        said = [line for line in ran.stderr.splitlines() if line and not line.startswith("ikp: ")]
        return " ".join(said[-1:])[-200:]
    told: dict[str, Any] = json.loads(made.read_text())
    return told


def measured(make: Callable[[], Case], detail: str, rounds: int, lock: Path) -> dict[str, Any]:
    """Return a case's plain time, whether its results are equal at a detail, and its ratio."""
    switch = Switch()
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        torch.manual_seed(0)
        case = make()
        results(switch, case, None)  # compiles, and tunes
        first, *others = [results(switch, case, each) for each in (None, None, detail)]
        steady, same = ["=" if equal(first, each) else "DIFFER" for each in others]
        bits = f"{same}{told(switch)}" if steady == "=" else "plain differs from itself"
        fcntl.flock(file, fcntl.LOCK_UN)
        fcntl.flock(file, fcntl.LOCK_EX)
        plain, ratios, late = pairs(switch, case, detail, rounds)
        low, middle, high = statistics.quantiles(ratios, n=4)
        spread = f"{low:.3f} to {high:.3f}" + f", {late} late" * bool(late)
    cell = f"{middle:.3f} ({spread}){told(switch)}"
    return {"us": statistics.median(plain), "bits": bits, "cell": cell}


def told(switch: Switch) -> str:
    """Say which launches were not recorded since this was asked last."""
    missing = switch.missing()
    return f", NOT RECORDED: {missing}" * bool(missing)


def results(switch: Switch, case: Case, detail: str | None) -> list[torch.Tensor]:
    """Return what a call computes, as bytes."""
    fresh, call = case
    made = switch.run(lambda: call(*fresh()), detail)
    bits = [each.detach().clone().contiguous().reshape(-1).view(torch.uint8) for each in made]
    switch.session.reset()  # waits for the GPU
    return bits


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def pairs(
    switch: Switch, case: Case, detail: str, rounds: int
) -> tuple[list[float], list[float], int]:
    """Return what plain calls took in us, recorded ones' ratios to them, and how many were late."""
    fresh, call = case
    flush = torch.empty(1 << 28, dtype=torch.int8, device="cuda")

    def timed(detail: str | None, flushes: int) -> tuple[float, bool, float]:
        arguments = fresh()
        torch.cuda.synchronize()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        for _ in range(flushes):
            flush.zero_()
        begin = time.perf_counter()
        before.record()
        _kept = switch.run(lambda: call(*arguments), detail)
        after.record()
        host, late = time.perf_counter() - begin, before.query()
        switch.session.reset()
        return before.elapsed_time(after) * 1000, late, host

    def flushes(detail: str | None) -> int:
        """Return how many take the GPU longer than the host takes for a call."""
        host = max(timed(detail, 1)[2] for _ in range(3))
        begin = time.perf_counter()
        for _ in range(20):
            flush.zero_()
        torch.cuda.synchronize()
        return 2 + math.ceil(1.5 * host / ((time.perf_counter() - begin) / 20))

    counts = {each: flushes(each) for each in (None, detail)}
    switch.missing()  # of what is not timed
    plain, ratios, late = [], [], 0
    for _ in range(rounds):
        one, early, _ = timed(None, counts[None])
        two, came, _ = timed(detail, counts[detail])
        plain.append(one)
        ratios.append(two / one)
        late += early or came
    return plain, ratios, late


if __name__ == "__main__":
    main()
