"""The launch that this thread makes now, where its launcher knows the device and the stream.

Torch knows them, too, but asks the CUDA runtime, whose call would be inside the program's own.
CUPTI makes a record of such a call, and torch.profiler fails at two records of one launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

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


now = _UnderWay()


class SlowError(Exception):
    """What a launch needs is not at hand: torch would have to be asked."""


class Launching:
    """A context of a launch, in which torch is not asked: ``SlowError`` is raised instead.

    Args:
        device: its number.
        stream: the driver's handle; not of a stream that is captured.
    """

    __slots__ = ("_before", "_here")

    def __init__(self, device: int, stream: int) -> None:
        self._here = device, stream

    def __enter__(self) -> None:
        self._before = now.device, now.stream
        now.device, now.stream = self._here

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        now.device, now.stream = self._before


def ask_torch() -> None:
    """Raise a SlowError inside the context of a launch: what follows asks torch."""
    if now.device >= 0:
        raise SlowError


@dataclass(frozen=True, slots=True)
class LaunchStream:
    """The stream of a launch, for the service."""

    number: int
    device: Any  # torch's

    def record_event(self) -> Any:
        """Return an event behind all that is in the stream now."""
        import torch

        known = torch.cuda.default_stream(self.device)
        if self.number:
            known = torch.cuda.ExternalStream(self.number, self.device)
        return known.record_event()
