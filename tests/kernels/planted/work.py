"""Arithmetic that takes as long as it is told to, and whose result is known."""

import torch
import triton
import triton.language as tl


@triton.jit
def relax(values, ROUNDS: tl.constexpr):
    """Move each value towards 1, step by step."""
    for _ in range(ROUNDS):
        values = values * 0.99 + 0.01
    return values


def relaxed(values: torch.Tensor, rounds: int) -> torch.Tensor:
    """Return what ``relax`` does."""
    return 1 + (values.double() - 1) * 0.99**rounds
