"""A launch with records that is compared with the plain one, where it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ikp.backends.loaded import Module
from ikp.backends.patched import Counts
from ikp.errors import CheckError
from ikp.machine import cuda
from ikp.machine.rehearsal import Buffer, DeviceMemory, Verdict, rehearse
from ikp.session.current import Session

DIFFERS = "compute something else with records (--check)"
"""Why later launches of a kernel run plain, where one was found wrong."""


def compared(
    module: Module,
    stream: int,
    buffers: Callable[[], Sequence[Buffer]],
    plain: Callable[[], object],
    recorded: Callable[[], object],
) -> Verdict | None:
    """Launch a kernel plain and with records, once for each module, and compare.

    Args:
        module: the patched kernel.
        stream: the driver's handle.
        buffers: returns the memory that the launch may write.
        plain: launches the kernel without records.
        recorded: launches it with records.

    Returns:
        What was found; None where an earlier launch was compared.
    """
    if module.checked:
        return None
    if cuda.capturing(stream):
        return Verdict("not checked: a CUDA graph captures its launch", ran=False)
    module.checked = True
    import torch.distributed as ranks

    if ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1:
        return Verdict("not checked: other ranks may wait for each of its launches", ran=False)
    return rehearse(buffers(), plain, recorded, DeviceMemory())


def refused(
    counts: Counts, session: Session, label: str, prof: Any, verdict: Verdict
) -> CheckError:
    """Forget a launch whose results differ; return what to tell.

    Args:
        counts: what counted it.
        session: what recorded it.
        label: the kernel's.
        prof: its buffer.
        verdict: how it differs.
    """
    session.discard(prof)
    counts.recorded[label] -= 1
    return CheckError(
        f"{label} with records computes something else than without: {verdict.text}. The plain "
        "kernel's results are kept, and nothing was recorded. Please report it, with the kernel's "
        "cubin."
    )
