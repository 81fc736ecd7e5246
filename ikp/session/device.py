"""What a session asks of the devices that its buffers are on."""

from __future__ import annotations

from typing import Any

import numpy as np

from ikp.core import abi
from ikp.core.decoding.launch_header import Source
from ikp.core.segment import WORDS_AT, Segment, Selection, Tensor
from ikp.errors import BufferError, UsageError


def checked_device(wish: Any) -> Any:
    """Return the torch device that a buffer is to be on.

    Raises:
        UsageError: it is no device.
        BufferError: no kernel records there, or a CUDA graph is being captured.
    """
    import torch

    try:
        device = torch.device(wish)
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"device={wish!r} is no torch device: use 'cuda', 'cuda:1' or 'cpu'."
        ) from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise BufferError(
                f"no CUDA device for the buffer on {device}: torch sees no GPU. Without one, "
                "run kernels in Triton's interpreter: set TRITON_INTERPRET=1 before importing "
                "triton."
            )
        if torch.cuda.is_current_stream_capturing():
            raise BufferError(
                "prof.buffer was called while a CUDA graph is being captured: take the buffer "
                "before the capture and pass it in."
            )
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
    elif device.type != "cpu":
        raise BufferError(f"no recording on device {device}: use a CUDA device or the CPU.")
    return device


def write_selection(data: Tensor, selection: Selection) -> None:
    """Write which warps and blocks record to the launch header, before any kernel reads it."""
    import torch

    words = torch.from_numpy(selection.words().view(np.uint8))
    data[WORDS_AT : WORDS_AT + len(words)].copy_(words)
    if data.is_cuda:
        torch.cuda.current_stream(data.device).synchronize()


def gpus_of(segments: list[Segment]) -> set[str]:
    """Return the GPUs on which the segments lie."""
    return {str(segment.data.device) for segment in segments if segment.data.is_cuda}


def wait(segments: list[Segment]) -> None:
    """Wait for everything queued on the segments' devices."""
    for device in {segment.data.device for segment in segments if segment.data.is_cuda}:
        import torch

        torch.cuda.synchronize(device)


def written(segment: Segment) -> bool:
    """Return whether a kernel has begun to record into the segment."""
    header = segment.data[:WORDS_AT].cpu().numpy()
    return bool(header.any())


def read_back(segment: Segment) -> Source:
    """Copy what the kernel wrote to the host."""
    data = segment.data
    head = data[: abi.LAUNCH_HEADER_BYTES].cpu().numpy()
    host = data.cpu().numpy() if head.any() else head
    return Source(
        label=segment.label,
        data=host,
        device=segment.device_name,
        backend=segment.backend,
        clock_rate_hz=segment.clock_rate_hz,
        regions=segment.regions,
        selected=segment.spec.select,
        totals=segment.spec.totals,
        selection=segment.selection if segment.spec.select else None,
        clock=segment.spec.clock,
        overflow=segment.spec.overflow,
        rank=segment.rank,
    )


def free_bytes(device: Any) -> int | None:
    """Return how much memory a GPU has left; None for the host."""
    if device.type == "cpu":
        return None
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def device_facts(device: Any) -> tuple[str, float]:
    """Return the device's name and advertised clock in Hz (0 where unknown)."""
    if device.type == "cpu":
        return "CPU", 0.0
    import torch

    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name} (cuda:{device.index})", getattr(properties, "clock_rate", 0) * 1e3
