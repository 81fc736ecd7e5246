"""CUDA streams, by torch: the user's current one, whether it is capturing, and one of ikp's own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any


def current_stream(device: Any) -> tuple[Any, int]:
    """Return torch's current stream of a device, and its number; None and 0 for the host."""
    if device.type != "cuda":
        return None, 0
    import torch

    stream = torch.cuda.current_stream(device)
    return stream, int(stream.cuda_stream)


def default_stream(device: Any) -> tuple[Any, int]:
    """Return the default stream of a device, and its number."""
    import torch

    return torch.cuda.default_stream(device), 0


def is_capturing(device: Any) -> bool:
    """Return whether the current stream is captured into a CUDA graph."""
    if device.type != "cuda":
        return False
    import torch

    return bool(torch.cuda.is_current_stream_capturing())


@cache
def beside(device: Any) -> Any:
    """Return a stream of a GPU on which no kernel of the user's runs; None for the host."""
    if getattr(device, "type", None) != "cuda":
        return None
    import torch

    return torch.cuda.Stream(device)


def on(stream: Any) -> AbstractContextManager[Any]:
    """Return a context in which torch's work goes to a stream, if there is one."""
    import torch

    return nullcontext() if stream is None else torch.cuda.stream(stream)
