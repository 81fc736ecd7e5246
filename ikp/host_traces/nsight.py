"""Reads what Nsight Systems exported as SQLite (``nsys export --type sqlite``) as a ``HostTrace``.

Times count from the session's start, which the file has as Unix time. Tables are there only where
there is something in them. A correlation id is one process's: here each is of the file.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ikp.core.host_trace import KERNEL, REPLAY, HostSlice, HostTrace, HostTrack
from ikp.errors import UsageError
from ikp.host_traces.kineto import OWN_KERNEL

HEAD: Final = b"SQLite format 3\0"
_VERSION: Final = re.compile(r"_v\d+$")
_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_ON_GPU: Final = {
    _KERNELS: KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": "gpu_memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "gpu_memset",
    _GRAPHS: REPLAY,
}
"""The category of each table's rows. A report has a graph's replays as one row each, without their
kernels, unless ``--cuda-graph-trace=node`` was given."""
_PROCESS: Final = ~0xFFFFFF
"""The bits of a thread's global number that are its process's."""


def is_nsight(path: str) -> bool:
    """Return whether a file is a database of SQLite."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(HEAD)) == HEAD
    except OSError:
        return False


def read(path: str) -> HostTrace:
    """Read a file; what ikp's own threads did is left out.

    Raises:
        UsageError: it is damaged, or no export of Nsight Systems.
    """
    try:
        with closing(
            sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
        ) as base:
            base.row_factory = sqlite3.Row
            return _Export(base).trace(path)
    except (sqlite3.Error, IndexError) as error:  # IndexError: a column that is not there
        raise UsageError(
            f"{path} is no export of Nsight Systems: {error}. Make one: nsys export --type sqlite."
        ) from error


@dataclass(slots=True)
class _Export:
    """An export that is open, and the tracks and correlation ids seen so far."""

    base: sqlite3.Connection
    tracks: dict[HostTrack, int] = field(default_factory=dict)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)

    def trace(self, path: str) -> HostTrace:
        (start,) = self._rows("TARGET_INFO_SESSION_START_TIME") or (None,)
        if start is None:
            raise UsageError(
                f"{path} is no export of Nsight Systems, or an old one: it does not say when its "
                "session began. Make one: nsys export --type sqlite."
            )
        texts = {row["id"]: row["value"] for row in self._rows("StringIds")}
        on_gpu, calls = [*self._on_gpu(texts)], [*self._calls(texts)]
        threads, own = _own(calls, on_gpu)
        shown = [each for each in calls if each.track not in threads]
        shown += [each for each in on_gpu if each.correlation not in own]
        shown += self._ranges(texts)
        return HostTrace(path, int(start["utcEpochNs"]), tuple(self.tracks), tuple(shown))

    def _rows(self, table: str) -> list[sqlite3.Row]:
        known = "select 1 from sqlite_master where name = ?"
        if not self.base.execute(known, (table,)).fetchone():
            return []
        return self.base.execute(f"select * from {table}").fetchall()  # noqa: S608 - our own names

    def _track(self, group: str, name: str) -> int:
        return self.tracks.setdefault(HostTrack(group, name), len(self.tracks))

    def _thread(self, number: int) -> int:
        return self._track(f"process {number >> 24 & 0xFFFFFF}", f"thread {number & 0xFFFFFF}")

    def _correlation(self, owner: int, number: int | None) -> int | None:
        if not number:
            return None
        return self.numbers.setdefault((owner & _PROCESS, number), len(self.numbers) + 1)

    def _calls(self, texts: Mapping[int, str]) -> Iterator[HostSlice]:
        for row in self._rows(_CALLS):
            name = _VERSION.sub("", texts.get(row["nameId"], "CUDA call"))
            kind = "cuda_runtime" if name.startswith("cuda") else "cuda_driver"
            number = self._correlation(row["globalTid"], row["correlationId"])
            at = row["start"], row["end"]
            yield HostSlice(self._thread(row["globalTid"]), name, kind, *at, number)

    def _on_gpu(self, texts: Mapping[int, str]) -> Iterator[HostSlice]:
        for table, kind in _ON_GPU.items():
            for row in self._rows(table):
                track = self._track(f"GPU {row['deviceId']}", f"stream {row['streamId']}")
                name, args = kind.removeprefix("gpu_"), dict[str, Any]()
                if table == _KERNELS:
                    name = texts.get(row["demangledName"], KERNEL)
                    args = {of: [row[f"{of}{axis}"] for axis in "XYZ"] for of in ("grid", "block")}
                elif table == _GRAPHS:
                    name = f"CUDA graph {row['graphId']}"
                else:
                    args = {"bytes": row["bytes"]}
                number = self._correlation(row["globalPid"], row["correlationId"])
                yield HostSlice(track, name, kind, row["start"], row["end"], number, args)

    def _ranges(self, texts: Mapping[int, str]) -> Iterator[HostSlice]:
        """Yield ranges of NVTX; marks have no end."""
        for row in self._rows("NVTX_EVENTS"):
            if row["end"] is not None and row["end"] >= row["start"]:
                name = row["text"] or texts.get(row["textId"], "NVTX")
                yield HostSlice(
                    self._thread(row["globalTid"]), name, "nvtx", row["start"], row["end"]
                )


def _own(calls: list[HostSlice], on_gpu: list[HostSlice]) -> tuple[set[int], set[int | None]]:
    """Return the tracks of ikp's own threads, which launch handshakes, and their calls' numbers."""
    own = {each.correlation for each in on_gpu if each.name == OWN_KERNEL}
    threads = {each.track for each in calls if each.correlation in own}
    return threads, own | {each.correlation for each in calls if each.track in threads}
