"""``take``: a launch's buffer; another thread takes it where torch would call CUDA for it.

The CUDA runtime launches a kernel by a call of the driver, inside its own call. CUPTI makes one
record of the two. But where another call of the runtime has begun and ended inside, in that thread,
the driver's call gets a record, too. Both have one correlation id, and torch.profiler ends with an
internal error. Taking a buffer calls torch, for a view of memory among others, and torch asks the
runtime for the device. A launch that a graph captures goes to the worker, too, in the same way. But
most launches need what an earlier one needed, which is at hand: then no other thread is asked.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from ikp.backends.patched import PER_THREAD, aside, taken
from ikp.driver import cuda
from ikp.session.service import Each, Worker
from ikp.signals import deferred

_workers = Each[int, Worker](lambda device: Worker(f"buffers of cuda:{device}"))


def take(make: Callable[[], Any], stream: int, *, captured: bool) -> Any:
    """Return the buffer of a launch on a stream, or None where it gets none.

    Args:
        make: takes it; once more, where something is not at hand.
        stream: the driver's handle.
        captured: whether a CUDA graph captures the launch.

    Raises:
        PatchError: the driver refuses.
        IkpError: ``make`` raises it.
    """
    otherwise = partial(_by_worker, make, stream, captured)
    if "torch" in sys.modules or _workers.every():
        prof = taken(make, stream, otherwise, captured=captured)
    else:  # its profiler complains where one thread imports it, and another one uses it first
        prof = otherwise()
    notice = getattr(getattr(prof, "data", None), "ikp_notice", None)
    if notice is not None:
        notice.asks = False  # torch for the stream, when its address is taken
    return prof


def _by_worker(make: Callable[[], Any], stream: int, captured: bool) -> Any:
    device = cuda.device()
    job = partial(contextvars.copy_context().run, _made, make, device, stream, captured)
    with deferred():  # else a signal could leave a buffer taken without a launch
        return _workers.of(device).call(job)


def _made(make: Callable[[], Any], device: int, stream: int, captured: bool) -> Any:
    # The per-thread default stream is another one here: its launches are read back at the end.
    current = 0 if captured or stream == PER_THREAD else stream
    with launching_on(device, current), aside() if captured else nullcontext():
        return make()


def launching_on(device: int, stream: int) -> AbstractContextManager[object]:
    """Return a context in which a stream of the driver's is torch's current one."""
    import torch

    torch.cuda.set_device(device)
    known = torch.cuda.default_stream(device)
    if stream:
        known = torch.cuda.ExternalStream(stream, device)
    made: AbstractContextManager[object] = torch.cuda.stream(known)
    return made
