"""``take``: a launch's buffer; another thread takes it where the device is to be asked for it.

The CUDA runtime launches a kernel by a call of the driver, inside its own call. CUPTI makes one
record of the two. But where another call of the runtime has begun and ended inside, in that thread,
the driver's call gets a record, too. Both have one correlation id, and torch.profiler ends with an
internal error. What a first buffer asks may come to torch, and so to the runtime. A launch that a
graph captures goes to the worker, too, in the same way. But most launches need what an earlier one
needed, which is at hand: then no other thread is asked.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from ikp.backends.patched import PER_THREAD, taken
from ikp.driver import cuda
from ikp.session.known_launch import Launching
from ikp.session.service import Each, Worker
from ikp.signals import deferred

_workers = Each[int, Worker](lambda _: Worker())


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
    prof = taken(make, stream, partial(_by_worker, make, stream, captured), captured=captured)
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
    with (
        Launching(device, current, slowly=True),
        cuda.relaxed() if captured else nullcontext(),
    ):
        return make()
