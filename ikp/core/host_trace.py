"""What ran on the host and on GPUs, as other profilers recorded it: tracks and their slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

KERNEL = "kernel"
"""The category of kernels' slices."""
REPLAY: Final = "graph_replay"
"""The category of slices that are a replay of a CUDA graph, from its first kernel to its last."""
MONOTONIC: Final = "unix_less_monotonic_ns"
"""The provenance of a trace that says by how much its host's two clocks differed, in ns."""
LAUNCH: Final = "ikp launch"
"""The argument of a kernel's slice that has the number of the launch."""


@dataclass(frozen=True, slots=True)
class HostTrack:
    """A row: a thread of a process, or a stream of a GPU."""

    group: str  # "python 1234", "GPU 0"
    name: str  # "thread 1234", "stream 7"


@dataclass(frozen=True, slots=True)
class HostSlice:
    """Something that lasted a while, on one track."""

    track: int  # index into HostTrace.tracks
    name: str
    category: str  # "cpu_op", "cuda_runtime", "kernel", ...
    start_ns: int
    end_ns: int
    correlation: int | None = None  # which a call shares with what it has launched
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_kernel(self) -> bool:
        """Whether it is one execution of a kernel on a GPU."""
        return self.category == KERNEL

    @property
    def launch(self) -> int:
        """The number of ikp's launch that it is the record of; 0 where that is not known."""
        found = self.args.get(LAUNCH)
        return found if isinstance(found, int) and not isinstance(found, bool) else 0


@dataclass(frozen=True, slots=True)
class HostTrace:
    """The content of one file of another profiler. Times count from ``base_ns``.

    Where they are ``monotonic``, they are those of the host's ``CLOCK_MONOTONIC``, since its boot.
    """

    source: str
    base_ns: int | None  # Unix time; None where the file does not say
    tracks: tuple[HostTrack, ...]
    slices: tuple[HostSlice, ...]
    rank: int | None = None  # of the process, where several work together and the file says so
    monotonic: bool = False
