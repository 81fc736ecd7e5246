"""``excerpts``: the source lines that findings name, as far as their files can be trusted.

A trace names files; it may come from elsewhere. A file is read only if the trace was recorded on
this host, the file is of a source language, and nothing was written to it since. What is not read
is named with its reason.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ikp.core.warps import first_start

if TYPE_CHECKING:
    from ikp.core.trace import Trace

SUFFIXES: Final = frozenset(
    (".py", ".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".ptx", ".inl")
)
_AROUND: Final = 3
_LARGEST: Final = 4 << 20
_WIDEST: Final = 200
_SLACK_S: Final = 1.0
"""``recorded`` has whole seconds."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file, and whether the finding names it."""

    number: int
    text: str
    named: bool


@dataclass(frozen=True, slots=True)
class SourceExcerpt:
    """Lines of one file around those that a finding names; or why there are none."""

    place: str  # "/src/matmul.py:93"
    lines: tuple[SourceLine, ...] = ()
    why_not: str = ""


def excerpts(places: Sequence[str], trace: Trace) -> list[SourceExcerpt]:
    """Return the lines around each place, ``"/src/matmul.py:93"``; near ones are one excerpt."""
    named: dict[str, list[int]] = {}
    for place in places:
        file, _, line = place.rpartition(":")
        if file and line.isdecimal():
            named.setdefault(file, []).append(int(line))
    return [
        _excerpt(file, near, trace)
        for file, numbers in named.items()
        for near in _neighbours(sorted(set(numbers)))
    ]


def _neighbours(numbers: list[int]) -> list[list[int]]:
    """Return line numbers in groups whose contexts meet."""
    groups = [[numbers[0]]]
    for one in numbers[1:]:
        if one - groups[-1][-1] <= 2 * _AROUND + 1:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _excerpt(file: str, numbers: list[int], trace: Trace) -> SourceExcerpt:
    place = f"{file}:{', '.join(map(str, numbers))}"
    path = Path(file)
    if why_not := _distrust(path, trace):
        return SourceExcerpt(place, why_not=why_not)
    try:
        text = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except (OSError, ValueError) as error:
        return SourceExcerpt(place, why_not=f"the file can't be read: {type(error).__name__}.")
    if numbers[0] < 1 or numbers[-1] > len(text):
        return SourceExcerpt(place, why_not=f"the file has {len(text):,} lines.")
    first, last = max(1, numbers[0] - _AROUND), min(len(text), numbers[-1] + _AROUND)
    lines = (SourceLine(i, text[i - 1][:_WIDEST], i in numbers) for i in range(first, last + 1))
    return SourceExcerpt(place, tuple(lines))


def _distrust(path: Path, trace: Trace) -> str:
    """Return why a file is not read, as a sentence; nothing if it is the one that was recorded."""
    began = _began(trace)
    if not path.is_absolute():
        return "the trace does not have the file's folder."
    if path.suffix not in SUFFIXES:
        return "its suffix is of no source language."
    if trace.provenance.get("host") not in (platform.platform(), platform.node()):
        return "the trace was recorded on another host."
    if began is None:
        return "the trace does not say when it was recorded."
    return _distrust_file(path, began)


def _distrust_file(path: Path, began: float) -> str:
    try:
        there = path.stat()
        ordinary = path.is_file()
    except (OSError, ValueError):
        return "the file is not on this host."
    if not ordinary or there.st_size > _LARGEST:
        return f"it is no file of at most {_LARGEST >> 20} MiB."
    if there.st_mtime > began + _SLACK_S:
        return "the file has changed since the recording."
    return ""


def _began(trace: Trace) -> float | None:
    """Return a Unix time, in s, at which the program ran; its first warp's where that is known."""
    try:
        recorded = datetime.fromisoformat(trace.provenance.get("recorded", "")).timestamp()
    except ValueError:
        return None
    clocks = [one.clock for one in trace.launches]
    if clocks and all(one.kind == "host" or one.unix_bound_ns is not None for one in clocks):
        return min(recorded, first_start(trace) / 1e9)
    return recorded
