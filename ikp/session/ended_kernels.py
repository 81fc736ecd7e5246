"""Waits for the kernels that record into some segments, with a limit where one is given."""

from __future__ import annotations

import threading
from typing import Any

from ikp.core.segment import WORDS_AT, Segment
from ikp.session.faults import failures


def gpus_of(segments: list[Segment]) -> set[str]:
    """Return the GPUs on which the segments lie."""
    return {str(segment.data.device) for segment in segments if segment.data.is_cuda}


def wait(segments: list[Segment]) -> None:
    """Wait for everything queued on the segments' devices."""
    for device in {segment.data.device for segment in segments if segment.data.is_cuda}:
        import torch

        torch.cuda.synchronize(device)


def wait_for(segments: list[Segment], patience_s: float | None) -> bool:
    """Wait for everything queued on the segments' devices, at most so long; return if it is done.

    Raises:
        RuntimeError: a kernel has failed.
    """
    if patience_s is None:
        wait(segments)
        return True
    failed: list[Exception] = []

    def waited_for() -> None:
        try:
            wait(segments)
        except Exception as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=waited_for, daemon=True)
    thread.start()
    thread.join(patience_s)
    if failed:
        raise failed[0]
    return not thread.is_alive()


def ended_or_failed(
    segments: list[Segment], patience_s: float | None
) -> tuple[bool, dict[Any, str]]:
    """Wait as ``wait_for`` does; return whether all kernels ended, and errors of failed GPUs."""
    try:
        ended = wait_for(segments, patience_s)
    except RuntimeError:
        ended = True
    devices = {each.data.device for each in segments if each.data.is_cuda}
    return ended, failures(devices) if ended else {}


def written(segment: Segment) -> bool:
    """Return whether a kernel has begun to record into the segment."""
    header = segment.data[:WORDS_AT].cpu().numpy()
    return bool(header.any())
