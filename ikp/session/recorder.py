"""What one opening of a session has handed out, and what came back in it."""

from __future__ import annotations

import platform
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ikp import registry
from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import Source, read_layout
from ikp.core.regions import merge
from ikp.core.segment import EVERYTHING, Segment, Selection, Tensor
from ikp.core.trace import Trace
from ikp.errors import DecodeError, IkpWarning
from ikp.session.current import Opening, closed
from ikp.session.memory import (
    Arena,
    Room,
    device_facts,
    read_back,
    wait,
    write_selection,
    written,
)
from ikp.session.wishes import Wishes
from ikp.version import __version__


@dataclass(frozen=True, slots=True)
class Asked:
    """What a launch's buffer is to be: the arguments of ``prof.buffer``, checked."""

    label: str
    regions: Mapping[int, str] = field(default_factory=dict)
    selection: Selection = EVERYTHING
    room: Room = Room()  # noqa: RUF009 - it can't change
    device: Any = None
    backend: str | None = None
    enabled: bool = True
    rank: int | None = None  # of this process now


@dataclass(slots=True, eq=False)
class _Taken:
    """A segment, and the tensor that a kernel was handed for it, as long as somebody holds that.

    ``heard`` tells that a kernel has written to it before it was emptied.
    """

    segment: Segment
    handed: Callable[[], Tensor | None]
    heard: bool = False


class Recording:
    """The segments of one opening of a session. Any thread may take one."""

    def __init__(self, opening: Opening, wishes: Wishes) -> None:
        self.opening = opening
        self.wishes = wishes
        self.unheard: list[str] = []  # which buffers nobody wrote to, as of the last reading
        self._lock = threading.Lock()
        self._taken: list[_Taken] = []
        self._arenas: dict[Any, Arena] = {}

    @property
    def segments(self) -> list[Segment]:
        """The segments handed out so far, in order."""
        return [taken.segment for taken in self._taken]

    def buffer(self, asked: Asked) -> Any:
        """Return what a kernel takes as its ``prof``; None where its language can't record.

        Raises:
            UsageError: what is asked for can't be had.
            BufferError: no memory, no GPU, or a CUDA graph is being captured.
            PluginError: the backend can't be loaded.
        """
        wishes, chosen = self.wishes, asked.selection
        settled = wishes.settle(asked.backend, asked.device, chosen)
        device, spec = settled.device, settled.spec
        name, rate = device_facts(device)
        nbytes = asked.room.nbytes(spec, chosen, device, wishes.buffer_size)
        with self._lock:
            segment = Segment(
                label=asked.label,
                data=self._arenas.setdefault(device, Arena(device)).take(nbytes),
                spec=spec,
                backend=settled.name,
                device_name=name,
                clock_rate_hz=rate,
                regions=asked.regions,
                selection=chosen,
                enabled=asked.enabled,
                rank=asked.rank,
            )
            handed = self._hand_out(segment)
        prof = settled.backend.argument(replace(segment, data=handed))
        if prof is None:  # the language has said why
            self.forget(handed)
        return prof

    def _hand_out(self, segment: Segment) -> Tensor:
        """Return a segment's memory as a tensor that notices when a kernel takes its address."""
        if segment.spec.select:
            write_selection(segment.data, segment.selection)
        handed = segment.data.as_subclass(_kind())
        recording = segment.enabled  # else nothing in it is ever read
        handed.ikp_notice = _Notice(segment, self.opening) if recording else None
        self._taken.append(_Taken(segment, weakref.ref(handed)))
        return handed

    def forget(self, handed: Tensor) -> None:
        """Leave out the segment whose kernel never ran."""
        with self._lock:
            self._taken = [each for each in self._taken if each.handed() is not handed]

    def empty(self) -> None:
        """Wait for all kernels, and make what they recorded unsaid: buffers still held go on.

        Those that nobody holds any more can't be launched again; their memory is given back.
        """
        with self._lock:
            wait(self.segments)  # of all: a kernel outlives what its launch was handed
            self._taken = [each for each in self._taken if each.handed() is not None]
            for each in self._taken:
                each.heard |= written(each.segment)
                each.segment.data.zero_()
                if each.segment.spec.select:
                    write_selection(each.segment.data, each.segment.selection)
            wait(self.segments)

    def release(self) -> None:
        """Give the memory back: what was recorded in it has been read."""
        with self._lock:
            self._taken.clear()
            self._arenas.clear()

    def read(self, facts: Mapping[str, str]) -> tuple[Trace, DecodeError | None]:
        """Wait for all kernels and decode what is sound of what they wrote.

        Args:
            facts: what the trace should say of its making.

        Returns:
            The trace, and what is wrong with the rest.
        """
        began = time.perf_counter()
        sources, broken = self._sources()
        names = merge([each.names() for each in tuple(self.wishes.backends.values())])
        copied = time.perf_counter()
        trace = decode(sources, names, {**provenance(self.segments), **facts})
        costs = {
            "copied_out_s": f"{copied - began:.4f}",
            "decoded_s": f"{time.perf_counter() - copied:.4f}",
        }
        return replace(trace, provenance={**trace.provenance, **costs}), broken

    def _sources(self) -> tuple[list[Source], DecodeError | None]:
        taken, sources, broken = tuple(self._taken), [], None
        silent = set()
        wait([each.segment for each in taken])
        for each in taken:
            source = read_back(each.segment)
            try:
                launched = read_layout(source) is not None
            except DecodeError as error:
                broken = error
                continue
            sources.append(source)
            if each.segment.enabled and not launched and not each.heard:
                silent.add(source.label)
        labels = ", ".join(map(repr, sorted(silent)))
        text = (
            f"nothing was recorded for {labels}: the kernel never ran, or it has no "
            "ikp.init(prof) with this buffer."
        )
        self.unheard = [text] if labels else []
        return sources, broken


_pinned: dict[int, Tensor] = {}
"""Memory that kernels may write to at any time from now on, by address: never freed."""


class _Notice:
    """Tells a launch that nobody will read what it records.

    Every language asks a tensor for its address when it launches, so it is there that this is told.
    """

    def __init__(self, segment: Segment, opening: Opening) -> None:
        self._data, self._label, self._opening = segment.data, segment.label, opening
        self._told = False

    def taken(self) -> None:
        """Take note of a launch: tell if nobody will read it, keep memory that outlives this."""
        over = not (self._opening.lasts and self._opening.here)
        if over or _capturing(self._data):  # a graph launches without asking for the address
            _pinned[self._data.untyped_storage().data_ptr()] = self._data
        if over and not self._told:
            self._told = True
            warnings.warn(self._why(), IkpWarning, stacklevel=4)

    def _why(self) -> str:
        if not self._opening.here:
            return (
                f"a kernel is launched with the buffer {self._label!r} of the process that this "
                "one was forked from, which can't see what is recorded here: it is lost. Open a "
                "session in this process, with a path of its own."
            )
        return (
            f"a kernel is launched with the buffer {self._label!r} after its session ended: what "
            "it records is lost. Take a buffer for each launch, inside the session."
        )


def _capturing(data: Tensor) -> bool:
    import torch

    return bool(data.is_cuda and torch.cuda.is_current_stream_capturing())


@cache
def _kind() -> Any:
    """Return the class of what kernels are handed: torch is loaded late."""
    import torch

    class Handed(torch.Tensor):  # type: ignore[misc]  # torch is Any here
        """Like any tensor; what is made of it is a plain one."""

        __torch_function__ = torch._C._disabled_torch_function_impl  # noqa: SLF001 - torch's docs
        ikp_notice: _Notice | None

        def data_ptr(self) -> int:
            """Return the address, as compiled kernels take it."""
            if self.ikp_notice is not None:
                self.ikp_notice.taken()
            return int(super().data_ptr())

        def untyped_storage(self) -> Any:
            """Return the memory, as Triton's interpreter takes it."""
            if self.ikp_notice is not None:
                self.ikp_notice.taken()
            return super().untyped_storage()

    return Handed


@contextmanager
def recording(wishes: Wishes) -> Iterator[Recording]:
    """Open a session that no launch finds: who has it takes its buffers."""
    opening = Opening(None)
    try:
        yield Recording(opening, wishes)
    finally:
        closed(opening)


def provenance(segments: list[Segment]) -> dict[str, str]:
    """Return what recorded the segments: program, host, devices and versions."""
    from importlib.metadata import PackageNotFoundError, version

    facts = {
        "ikp": __version__,
        "abi": str(abi.ABI_VERSION),
        "python": platform.python_version(),
        "host": platform.platform(),
        "command": " ".join(sys.argv)[:1000],
        "recorded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "devices": ", ".join(sorted({segment.device_name for segment in segments})),
    }
    for package in (*registry.distributions(), "torch"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts
