"""Memory of zeros for what kernels record."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ikp.core.segment import Tensor
from ikp.session.streams import beside, on

_PIECE_BYTES = 4 << 20


def zeroed(size: int, device: Any) -> Tensor:
    """Return memory that a kernel on any stream finds zero.

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
    with on(beside(device)):
        data = torch.empty(size, dtype=torch.uint8, device=device)
    zero(data)
    return data


def zero(data: Tensor) -> None:
    """Zero memory that no kernel uses now, wait for that, and leave a GPU's caches as they were.

    What a kernel zeroes is in the L2 cache afterwards, in place of what the user's next kernel
    would have found there; and that one waits until the zeros are in memory. Zeros that come from
    the host leave the cache alone.

    Args:
        data: bytes on any device.
    """
    stream = beside(data.device)  # where no kernel is waited for
    source = None if data.device.type == "cpu" else _on_host()
    with on(stream):
        if source is None:
            data.zero_()
        else:
            for piece in data.split(_PIECE_BYTES):
                piece.copy_(source[: len(piece)], non_blocking=True)
    if stream is not None:
        stream.synchronize()


@cache
def _on_host() -> Tensor | None:
    """Return zeros that a GPU reads by itself; None where the host has no memory for them."""
    import torch

    try:
        return torch.zeros(_PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return None
