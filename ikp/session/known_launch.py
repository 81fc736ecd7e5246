"""The launch that this thread makes now, where its launcher knows the device and the stream.

Torch knows them, too, but asks the CUDA runtime, whose call would be inside the program's own.
CUPTI makes a record of such a call, and torch.profiler fails at two records of one launch. A
program without torch has nothing else that knows them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

LASTS_S: Final = 0.25
"""So long after it was made, no launch takes a segment of a stock: clocks and sizes are looked at
by Python."""
revocations: list[int] = [0]
"""How often ``revoke`` was called."""
revokers: list[Callable[[], None]] = []
"""Functions that have the next launch in each thread ask Python, if it repeats an earlier one."""


def revoke() -> None:
    """Have the next launches ask Python: sessions, steps or other settings have changed."""
    revocations[0] += 1
    for each in revokers:
        each()


class _UnderWay(threading.local):
    device: int = -1  # the device's number; -1: no such launch is under way
    stream: int = 0
    slowly: bool = False  # whether what is not at hand may be asked for


now = _UnderWay()


class SlowError(Exception):
    """What a launch needs is not at hand: the device would have to be asked."""


class Launching:
    """A context of a launch, in which the device is not asked: ``SlowError`` is raised instead.

    Args:
        device: its number.
        stream: the driver's handle; not of a stream that is captured.
        slowly: whether the device is asked: in a thread of ikp's own, which makes no launch.
    """

    __slots__ = ("_before", "_here")

    def __init__(self, device: int, stream: int, *, slowly: bool = False) -> None:
        self._here = device, stream, slowly

    def __enter__(self) -> None:
        self._before = now.device, now.stream, now.slowly
        now.device, now.stream, now.slowly = self._here

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        now.device, now.stream, now.slowly = self._before


def ask_device() -> None:
    """Raise a SlowError inside the context of a launch: what follows asks torch or the driver."""
    if now.device >= 0 and not now.slowly:
        raise SlowError
