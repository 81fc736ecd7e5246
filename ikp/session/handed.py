"""A buffer as a program holds it: a tensor that notices when a kernel takes its address.

A view of a GPU's memory asks the CUDA runtime for the device. Inside the program's own call of the
runtime, that would get a record of its own from CUPTI. So the service makes the tensor with the
segment, before a launch asks for one. In a program without torch, none does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from ikp.core.segment import Segment, Tensor
from ikp.session import launch_marks
from ikp.session.current import Opening
from ikp.session.device import Device, device_of, tensor_of
from ikp.session.memory import slots_of
from ikp.session.replays import captured as note_capture
from ikp.session.storage import launch_stream
from ikp.warning import warn

_pinned: dict[int, Tensor] = {}
"""Memory that kernels may write to at any time from now on, by address: never freed."""


def made_ahead(data: Tensor) -> Tensor:
    """Return the memory of a segment, with the tensor made that ``hand_out`` is to return of it."""
    if not is_made_ahead(data):
        data.ikp_handed = tensor_of(data).as_subclass(_kind())
    return data


def is_made_ahead(data: Tensor) -> bool:
    """Return whether ``hand_out`` makes no tensor of this memory any more."""
    return getattr(data, "ikp_handed", None) is not None


def hand_out(data: Tensor, label: str, opening: Opening | None) -> Tensor:
    """Return ``data`` as a tensor that notices when a kernel takes its address.

    Args:
        data: the memory of one segment.
        label: of the buffer.
        opening: the opening of the session that reads it; None where no kernel records into it.
    """
    handed = getattr(data, "ikp_handed", None)
    if handed is None:
        handed = tensor_of(data).as_subclass(_kind())
    else:
        data.ikp_handed = None
    handed.ikp_notice = None if opening is None else Notice(data, label, opening)
    return handed


class Held:
    """The memory of one segment, as a launcher of ikp's holds it until its launch is made.

    It is no tensor: where one goes, torch gives Python's lock to another thread.

    Args:
        data: the memory.
        nbytes: of the memory.
        label: of the buffer.
        opening: the opening of the session that reads it; None where no kernel records into it.
    """

    __slots__ = ("__weakref__", "address", "device", "ikp_notice", "nbytes")

    def __init__(self, data: Tensor, nbytes: int, label: str, opening: Opening | None) -> None:
        self.address, self.nbytes = int(data.data_ptr()), nbytes
        self.device = data.device
        self.ikp_notice = None if opening is None else Notice(data, label, opening)

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address

    def numel(self) -> int:
        """Return how many bytes there are."""
        return self.nbytes


class Notice:
    """A buffer's notice of its launches: streams, graph captures, and a launch after the session.

    A launch after the session gets a warning: its records are lost. Every language asks a tensor
    for its address when it launches; the notice is taken there.
    """

    __slots__ = (
        *("_data", "_label", "_stream", "_warned", "asks", "captured"),
        *("opening", "request", "segment", "streams"),
    )

    def __init__(self, data: Tensor, label: str, opening: Opening) -> None:
        self._data, self._label, self.opening = data, label, opening
        self._stream: Callable[[], tuple[int, bool]] | None = None  # of a GPU's launch, once asked
        self._warned = False
        self.segment: Segment | None = None  # that the session reads
        self.request: Any = None  # the ``BufferRequest`` that it was taken by
        self.asks = True  # torch for the stream; False where the launcher calls ``launched``
        self.streams: set[int] = set()  # that were current when its address was taken
        self.captured = False  # a CUDA graph holds its address

    def taken(self) -> None:
        """Note a launch: warn if its records are lost, and then keep the memory for good."""
        if not self.asks:
            return
        if self._stream is None:
            data = self._data
            self._stream = launch_stream(self.device) if data.is_cuda else _none
        stream, captured = self._stream()
        if captured or launch_marks.marks or stream not in self.streams:  # asked twice a launch
            self.launched(stream, captured=captured)
        opening = self.opening
        if opening.lasts and opening.pid == os.getpid():
            return
        _pinned[self.address] = self._data
        if not self._warned:
            self._warned = True
            warn(self._why(), stacklevel=4)

    def launched(self, stream: int, *, captured: bool) -> None:
        """Note the stream of a launch.

        ``captured`` says that a CUDA graph will launch again without asking for the address.
        """
        self.streams.add(stream)
        if self.segment is not None and launch_marks.marks:
            self.segment.number = launch_marks.mark(self.segment.number)
        if captured:
            self.captured = True
            _pinned[self.address] = self._data
            if self._data.is_cuda:
                note_capture(stream, self)

    @property
    def device(self) -> Device:
        """The device of the buffer."""
        return device_of(self._data.device)

    @property
    def address(self) -> int:
        """The address of the buffer."""
        return int(self._data.data_ptr())

    @property
    def slots(self) -> int:
        """How many slots its launch has; 0 where no grid was given."""
        asked = self.request
        if asked is None or asked.room.grid is None:
            return 0
        return slots_of(asked.room.grid, asked.room.num_warps, asked.selection)[0]

    def _why(self) -> str:
        if not self.opening.here:
            return (
                f"a kernel is launched with the buffer {self._label!r} of the process that this "
                "one was forked from, which can't see what is recorded here: it is lost. Open a "
                "session in this process, with a path of its own."
            )
        return (
            f"a kernel is launched with the buffer {self._label!r} after its session ended: what "
            "it records is lost. Take a buffer for each launch, inside the session."
        )


@dataclass(frozen=True, slots=True)
class StockNotice:
    """What is known of the launches of a stock, all alike: no program holds their buffers."""

    streams: frozenset[int]
    captured: ClassVar[bool] = False


def _none() -> tuple[int, bool]:
    """Return the stream of a launch on the host, which has none, and that none is captured."""
    return 0, False


@cache
def _kind() -> Any:
    """Return the tensor class of handed-out buffers; torch is imported at first use."""
    import torch

    address, memory = torch.Tensor.data_ptr, torch.Tensor.untyped_storage

    class Handed(torch.Tensor):  # type: ignore[misc]  # torch is Any here
        """A tensor that notices when its address is asked for; views of it are plain tensors."""

        __torch_function__ = torch._C._disabled_torch_function_impl  # noqa: SLF001 - torch's docs
        ikp_notice: Notice | None

        def data_ptr(self) -> int:
            """Return the address, as compiled kernels take it."""
            notice = self.ikp_notice
            if notice is not None:
                notice.taken()
            made: int = address(self)
            return made

        def untyped_storage(self) -> Any:
            """Return the memory, as Triton's interpreter takes it."""
            if self.ikp_notice is not None:
                self.ikp_notice.taken()
            return memory(self)

    return Handed
