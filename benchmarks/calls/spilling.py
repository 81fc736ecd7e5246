"""Attention of Triton's tutorials with too many registers: it spills."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.calls.case import Case, definitions, randn, same


def spilling(block_m: int, block_n: int, head: int, stages: int) -> Case:
    """Return a call whose warps keep what spills in L1, beside more than 48 KB of shared memory."""
    import triton

    module = definitions("triton", "python", "tutorials", "06-fused-attention.py")
    q, k, v = (randn(4, 16, 2048, head, dtype=torch.float16) for _ in "qkv")

    def call(*each: Any) -> Any:
        module._attn_fwd.configs = [  # noqa: SLF001
            triton.Config(
                {"BLOCK_M": block_m, "BLOCK_N": block_n},
                num_stages=stages,
                num_warps=4,
                pre_hook=module._host_descriptor_pre_hook,  # noqa: SLF001
            )
        ]
        return module.attention(*each)

    return same(q, k, v, True, 0.125, False), call
