"""Reads torch.profiler's JSON as a ``HostTrace`` without ikp's calls; finds launches in it.

The kernel record of each marked launch is found by the thread and CUPTI's correlation id. A mark is
a range of the host in the launching thread, made by ``ikp.session.launch_marks``. The call that
launches ends after it, and calls before it have ended: the mark is within the CUDA runtime's call,
or right before the driver's. CUPTI gives that call and its kernel one id.
"""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ikp.core.abi import LAUNCH_HEADER_BYTES
from ikp.core.host_trace import KERNEL, LAUNCH, HostSlice, HostTrace, HostTrack
from ikp.errors import UsageError
from ikp.uncollected import uncollected

NAMED: Final = "ikp launch "
"""The name of a mark, before the launch's number."""
_CALLS: Final = ("cuda_runtime", "cuda_driver")
_LAUNCHES: Final = re.compile(r"cu(da)?Launch(Cooperative)?Kernel")


@dataclass(slots=True)
class Marks:
    """The marks of a file."""

    _found: list[HostSlice] = field(default_factory=list)

    def takes(self, one: HostSlice) -> bool:
        """Take a slice that is a mark, which no viewer is to show."""
        is_mark = one.name.startswith(NAMED) and one.name[len(NAMED) :].isdecimal()
        if is_mark:
            self._found.append(one)
        return is_mark

    def numbers(self, slices: Sequence[HostSlice]) -> Mapping[int, int]:
        """Return by the index of a kernel's record the number of its launch.

        Of several marks before a call, the last one is its. Of several calls with one number, the
        last one: the same buffer was launched with again.
        """
        if not self._found:
            return {}
        kernels = defaultdict[int | None, list[int]](list)
        calls = defaultdict[int, list[HostSlice]](list)
        for index, each in enumerate(slices):
            if each.correlation is not None and each.is_kernel:
                kernels[each.correlation].append(index)
            elif each.category in _CALLS and _LAUNCHES.match(each.name):
                calls[each.track].append(each)
        last = {number: kernels[call] for call, number in self._marked(calls).items()}
        return {found[0]: number for number, found in last.items() if len(found) == 1}

    def _marked(self, calls: Mapping[int, list[HostSlice]]) -> dict[int | None, int]:
        """Return the number that marks each call, by the call's correlation."""
        marked = dict[int | None, int]()
        for track, marks in self._by_track().items():
            some = sorted(calls.get(track, ()), key=lambda call: call.end_ns)
            ends = [call.end_ns for call in some]
            for mark in marks:
                if (at := bisect_left(ends, mark.start_ns)) < len(some):
                    marked[some[at].correlation] = int(mark.name[len(NAMED) :])
        return marked

    def _by_track(self) -> Mapping[int, list[HostSlice]]:
        made = defaultdict[int, list[HostSlice]](list)
        for each in sorted(self._found, key=lambda mark: mark.start_ns):
            made[each.track].append(each)
        return made


_COPY: Final = "gpu_memcpy"
_ANNOTATION: Final = "gpu_user_annotation"
_ON_GPU: Final = (KERNEL, _COPY, "gpu_memset", _ANNOTATION)
OWN_KERNEL: Final = "ikp_handshake"
"""The kernel of handshakes, which a thread of ikp launches, as it does ikp's own copies."""
_BOOKKEEPING: Final = frozenset(
    ("External id", "Record function id", "Ev Idx", "queued", "context", "cbid", "correlation")
)
"""Arguments by which Kineto finds its own events: they are most of a file, and arrows show them."""
_VIZTRACER: Final = "viztracer_metadata"
"""What a file of viztracer has, whose times are those of ``CLOCK_MONOTONIC``."""
_NS_PER_US: Final = 1000
_LEFT_OUT: Final = frozenset({"Trace"})
"""Categories of slices that only say how long the profiler ran."""


def read(path: str | PathLike[str]) -> HostTrace:
    """Read a file; ikp's own launches and copies are left out.

    Raises:
        UsageError: it can't be read, or is no JSON of torch.profiler.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}.") from error
    return parse(content, str(path))


@uncollected()
def parse(content: bytes, source: str) -> HostTrace:
    """Read a file's content, as :func:`read` does.

    Args:
        content: the bytes, which may be compressed by gzip.
        source: the file's name, for messages.

    Raises:
        UsageError: it is no JSON of torch.profiler.
    """
    found = _parsed(content, source)
    events = [each for each in found["traceEvents"] if _is_shown(each)]
    own = _own_threads(events)
    tracks = _Tracks.of(found["traceEvents"])
    marks, made = Marks(), list[HostSlice]()
    for each in events:
        if own.has(each) or (one := _slice(each, tracks)) is None:
            continue
        if not marks.takes(one):
            made.append(one)
    numbers = marks.numbers(made)
    slices = tuple(
        replace(each, args={**each.args, LAUNCH: numbers[index]}) if index in numbers else each
        for index, each in enumerate(made)
    )
    base_ns, monotonic = _time_base(found)
    return HostTrace(source, base_ns, tuple(tracks.known), slices, _rank(found), monotonic)


def _time_base(found: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Return the Unix time that times count from, and whether they are of ``CLOCK_MONOTONIC``."""
    base = found.get("baseTimeNanoseconds")
    return None if base is None else int(base), base is None and _VIZTRACER in found


def _is_shown(event: object) -> bool:
    if not isinstance(event, dict) or event.get("ph") != "X":
        return False
    return event.get("cat") not in _LEFT_OUT


def _rank(found: Mapping[str, Any]) -> int | None:
    group = found.get("distributedInfo")
    rank = group.get("rank") if isinstance(group, dict) else None
    return rank if isinstance(rank, int) else None


def until(host: HostTrace, unix_ns: int) -> HostTrace:
    """Return a trace without what began on the host after a time, and what that started on GPUs."""
    if host.base_ns is None:
        return host
    last = unix_ns - host.base_ns
    late = {
        each.correlation for each in host.slices if each.category in _CALLS and each.start_ns > last
    } - {None}
    kept = tuple(
        each
        for each in host.slices
        if (each.correlation not in late if each.category in _ON_GPU else each.start_ns <= last)
    )
    return replace(host, slices=kept)


def _parsed(content: bytes, path: str) -> dict[str, Any]:
    """Return the file's content. Numbers with a point become ``Decimal``: a float loses ns."""
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        found = json.loads(content, parse_float=Decimal)
    except (ValueError, EOFError, OSError) as error:
        raise UsageError(
            f"{path} is no JSON: {error}. Give what torch.profiler exported."
        ) from error
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise UsageError(
            f"{path} has no traceEvents: give what torch.profiler's export_chrome_trace wrote."
        )
    return found


@dataclass(frozen=True, slots=True)
class _Own:
    """The threads of ikp, the numbers of their calls, and its streams."""

    threads: frozenset[tuple[Any, Any]]
    correlations: frozenset[int]
    streams: frozenset[tuple[Any, Any]]

    def has(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is ikp's own."""
        if event.get("cat") in _ON_GPU:
            stream = event.get("pid"), event.get("tid")
            return stream in self.streams or _correlation(event) in self.correlations
        return (event.get("pid"), event.get("tid")) in self.threads


def _own_threads(events: Sequence[Mapping[str, Any]]) -> _Own:
    """Find ikp's own threads, by the calls that launch the kernel of handshakes."""
    own = _correlations(each for each in events if each.get("name") == OWN_KERNEL)
    calls = [each for each in events if each.get("cat") in _CALLS]
    threads = {_thread(each) for each in calls if _correlation(each) in own}
    numbers = _correlations(each for each in calls if _thread(each) in threads)
    streams = _own_streams(events, {*map(_correlation, calls)})
    return _Own(frozenset(threads), numbers | own, frozenset(streams))


def _thread(event: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the process and the thread of an event."""
    return event.get("pid"), event.get("tid")


def _own_streams(
    events: Iterable[Mapping[str, Any]], called: Container[int | None]
) -> Iterator[tuple[Any, Any]]:
    """Yield the streams of ikp's own copies, which go to the driver: Kineto has no calls of them.

    They have copies alone, some of them of a launch's header.
    """
    by_stream = defaultdict[tuple[Any, Any], list[Mapping[str, Any]]](list)
    for each in events:
        if each.get("cat") in _ON_GPU and each.get("cat") != _ANNOTATION:
            by_stream[each.get("pid"), each.get("tid")].append(each)
    for stream, found in by_stream.items():
        copies = all(
            each.get("cat") == _COPY and _correlation(each) not in called for each in found
        )
        if copies and any(_bytes(each) == LAUNCH_HEADER_BYTES for each in found):
            yield stream


def _bytes(event: Mapping[str, Any]) -> object:
    args = event.get("args")
    return args.get("bytes") if isinstance(args, dict) else None


def _correlations(events: Iterable[Mapping[str, Any]]) -> frozenset[int]:
    """Return the numbers of some calls, and of what they started."""
    return frozenset(each for each in map(_correlation, events) if each is not None)


def _correlation(event: Mapping[str, Any]) -> int | None:
    args = event.get("args")
    found = args.get("correlation") if isinstance(args, dict) else None
    return found if isinstance(found, int) and found > 0 else None


@dataclass(slots=True)
class _Tracks:
    """The tracks of a file, in the order in which they occur."""

    names: dict[tuple[str, Any, Any], str] = field(default_factory=dict)
    known: dict[HostTrack, int] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Any]) -> _Tracks:
        """Return tracks with the names that a file gives processes and threads."""
        made = cls()
        for each in events:
            if isinstance(each, dict) and each.get("ph") == "M":
                kind, name = each.get("name"), (each.get("args") or {}).get("name")
                if kind in {"process_name", "thread_name"} and isinstance(name, str):
                    thread = each.get("tid") if kind == "thread_name" else None
                    made.names[kind, each.get("pid"), thread] = name
        return made

    def number(self, event: Mapping[str, Any]) -> int:
        """Return the number of an event's track."""
        process, thread = event.get("pid"), event.get("tid")
        if event.get("cat") in _ON_GPU:
            args = event.get("args") or {}
            track = HostTrack(f"GPU {args.get('device', process)}", f"stream {thread}")
            if event.get("cat") == _ANNOTATION:
                track = HostTrack(track.group, f"{track.name} annotations")
        else:
            group = self.names.get(("process_name", process, None), "process")
            name = self.names.get(("thread_name", process, thread), f"thread {thread}")
            track = HostTrack(f"{group} {process}", name)
        return self.known.setdefault(track, len(self.known))


def _slice(event: Mapping[str, Any], tracks: _Tracks) -> HostSlice | None:
    """Return the slice of an event; None of one that has no times."""
    start, length = event.get("ts"), event.get("dur")
    if not _is_number(start) or not _is_number(length) or (lasted := _ns(length)) < 0:
        return None
    begin = _ns(start)
    args = {
        str(name): value if isinstance(value, (bool, int, str)) else _plain(value)
        for name, value in (event.get("args") or {}).items()
        if name not in _BOOKKEEPING
    }
    return HostSlice(
        tracks.number(event),
        str(event.get("name")),
        str(event.get("cat", "")),
        begin,
        begin + lasted,
        _correlation(event),
        args,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _ns(value: Any) -> int:
    return int((Decimal(value) * _NS_PER_US).to_integral_value())


def _plain(value: Any) -> Any:
    """Return a value without ``Decimal``."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
