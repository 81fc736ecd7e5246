"""``first_look``: what ``ikp view`` opens on: a launch, the UI's parameters, lines for the user.

A file that is no trace is refused.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ikp.errors import ExportError, UsageError

if TYPE_CHECKING:
    from ikp.exporters.perfetto.first_look import Place, Shown
    from ikp.exporters.perfetto.reader import Head


@dataclass(frozen=True, slots=True)
class FirstLook:
    """Parameters for the UI beside the file's address, and the lines for the user.

    For a trace of ikp also the numbers of ranges and of rows of each launch, of the rows that
    launches share (None: they share none), and the launch it opens on.
    """

    query: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    ranges: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    shared_rows: int | None = None
    launch: int | None = None


def first_look(path: Path, launch: str | None = None, place: Place | None = None) -> FirstLook:
    """Find what to open on: a launch of a trace by name or number, the first by default.

    ``place`` is a time of that launch to open on, instead of its first wave.

    Raises:
        ExportError: the file is no trace that the UI shows.
        UsageError: there is no such launch, or the file has no launches.
    """
    from ikp.exporters.protobuf.varints import DamagedError

    head = None if _is_chrome(path) else _head(path)
    if head is None:
        if launch is not None:
            raise UsageError(
                f"--launch needs a trace that ikp wrote as .pftrace; {path} is another one."
            )
        return FirstLook()
    try:
        return _at(head, path, launch, place)
    except DamagedError as error:
        raise ExportError(f"{path} is damaged: {error}. Write or copy it again.") from error


def _head(path: Path) -> Head | None:
    """Return the head of a trace that ikp wrote; None for another program's trace."""
    from ikp.exporters.perfetto.reader import ForeignError, read_head

    try:
        return read_head(path)
    except ForeignError:
        return None
    except ExportError as error:
        raise ExportError(
            f"{error} The UI shows .pftrace and Chrome's .json; `ikp convert` makes them."
        ) from error


def _is_chrome(path: Path) -> bool:
    """Return whether a file begins like a trace in Chrome's JSON, plain or compressed."""
    try:
        with path.open("rb") as file:
            head = file.read(_ENOUGH)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as packed:
                head = packed.read(_ENOUGH)
    except (OSError, EOFError, zlib.error):
        return False
    return head.lstrip()[:1] in {b"{", b"["} and any(key in head for key in _KEYS)


_ENOUGH: Final = 1 << 16
_KEYS: Final = (b'"traceEvents"', b'"displayTimeUnit"', b'"otherData"', b'"ph"')


def _at(head: Head, path: Path, launch: str | None, place: Place | None) -> FirstLook:
    from ikp.exporters.perfetto.first_look import (
        query,
        ranges_of,
        rows_of,
        shared_rows_of,
        shown,
    )

    launches = shown(head)
    if not launches:
        if launch is not None:
            raise UsageError(f"{path} holds no launches, so not {launch!r} either.")
        return FirstLook()
    number = 0 if launch is None else _find(launches, launch, path)
    words = []
    if len(launches) > 1:
        words.append(
            f"It opens on launch {number} of {len(launches)}, {launches[number].name!r}. "
            f"For another: --launch NAME, or a number from 0 to {len(launches) - 1}."
        )
    rows = rows_of(head), shared_rows_of(head)
    return FirstLook(query(head, number, place), words, ranges_of(head), *rows, number)


def _find(launches: list[Shown], wanted: str, path: Path) -> int:
    """Return the index of the launch with a name or a number."""
    for names in ([one.name for one in launches], [one.label for one in launches]):
        if wanted in names:
            return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < len(launches):
        return int(wanted)
    known = ", ".join(f"{i}: {one.name!r}" for i, one in enumerate(launches[:_MANY]))
    more = f", and {len(launches) - _MANY} more" if len(launches) > _MANY else ""
    raise UsageError(f"{path} has no launch {wanted!r}. It has {known}{more}.")


_MANY: Final = 20
