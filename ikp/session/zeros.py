"""Memory of zeros for what kernels record."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ikp.core.segment import Tensor
from ikp.session.streams import beside, on

_PIECE_BYTES = 4 << 20


def zeroed(size: int, device: Any) -> Tensor:
    """Return memory that a kernel on any stream finds zero, and a GPU's caches as they were.

    What a kernel zeroes is in the L2 cache afterwards, in place of what the user's next kernel
    would have found there; and that one waits until the zeros are in memory. Zeros that come from
    the host leave the cache alone.

    Args:
        size: in bytes.
        device: torch's.

    Raises:
        RuntimeError, MemoryError: there is no memory for it; torch's and numpy's.
    """
    import torch

    if str(device) == "cpu":
        # The system's pages are zero already. And torch zeroes with threads, which a process
        # that was forked has lost: it would wait for them for ever.
        return torch.from_numpy(np.zeros(size, np.uint8))
    stream, source = beside(device), _on_host()  # no kernel is waited for on that stream
    with on(stream):
        if source is None:
            data = torch.zeros(size, dtype=torch.uint8, device=device)
        else:
            data = torch.empty(size, dtype=torch.uint8, device=device)
            for piece in data.split(_PIECE_BYTES):
                piece.copy_(source[: len(piece)], non_blocking=True)
    if stream is not None:
        stream.synchronize()
    return data


@cache
def _on_host() -> Tensor | None:
    """Return zeros that a GPU reads by itself; None where the host has no memory for them."""
    import torch

    try:
        return torch.zeros(_PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return None
