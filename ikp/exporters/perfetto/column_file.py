"""``ColumnFile``: the columns of a ``.pftrace`` file, read in part; errors that refuse a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import Final

import numpy as np

from ikp.core.args import ArgColumn, is_flow
from ikp.core.trace import Events, Launch, Region, Slots, Totals, Trace
from ikp.errors import ExportError
from ikp.exporters.columns import small_tables
from ikp.exporters.columns.chunk import Chunk
from ikp.exporters.columns.event_chunks import ALL, Columns, EventTable
from ikp.exporters.columns.packing import JSON, Facts
from ikp.exporters.columns.small_tables import check_slots, check_totals, unpack_rows
from ikp.exporters.perfetto._schema import COLUMNAR
from ikp.exporters.perfetto._walk import ByteBudget, Bytes, check_seal, walk
from ikp.exporters.protobuf.varints import DamagedError
from ikp.progress import track


class ForeignError(ExportError):
    """The file may be a good Perfetto trace, but not one that this reader knows."""


def damaged(path: str | PathLike[str], error: Exception) -> ExportError:
    """Return the refusal of a file that is not whole."""
    return ExportError(
        f"{path} is not a whole Perfetto trace: {error}. Either it was cut short or changed "
        "(write or copy it again), or it is a file of another kind."
    )


def foreign(path: str | PathLike[str]) -> ForeignError:
    """Return the refusal of a Perfetto trace that is not ours."""
    return ForeignError(
        f"{path} is a Perfetto trace, but ikp did not write it, so it lacks what ikp needs to "
        "know of launches and blocks. Open it at https://ui.perfetto.dev."
    )


def damaged_columns(path: str | PathLike[str], error: Exception) -> ExportError:
    """Return the refusal of a trace of ours that is not whole, of which parts may be sound."""
    return ExportError(
        f"{path} is not a whole Perfetto trace: {error}. It was cut short or changed: write or "
        "copy it again. `ikp convert --salvage` reads what is sound in it, and says what is lost."
    )


def two_traces(path: str | PathLike[str]) -> ExportError:
    """Return the refusal of files of ours that were joined."""
    return ExportError(
        f"{path} holds several traces, one behind the other. Perfetto shows them together; ikp "
        "reads single files: give those, or take them apart with `ikp convert --salvage`. "
        "`ikp.edit.concat` joins traces to one that can be read again."
    )


def another_version(path: str | PathLike[str], written: object) -> ForeignError:
    """Return the refusal of a layout that isn't known."""
    known = ", ".join(map(str, COLUMNAR))
    return ForeignError(
        f"{path} has version {written} of ikp's layout; this ikp reads versions {known}. "
        "Read it with the version of ikp that wrote it."
    )


_ROW_BYTES: Final = {"slots": 49, "others": 49, "totals": 33, "events": 38}
"""What a row of each table takes in memory, without arguments."""
_ARG_BYTES: Final = 9

Choose = Callable[[Chunk], bool]


class ColumnFile:
    """The columns of one trace. Heads are read at first, columns when they are asked for.

    Raises:
        ForeignError: the layout is a later one.
        ExportError: it holds two traces, or more than its size explains.
        DamagedError: it is not whole.
    """

    def __init__(self, path: str | PathLike[str], source: Bytes) -> None:
        self._path, self._source = path, source
        self._budget = ByteBudget(path, source.size)
        self._parts = list(walk(source))
        take = self._budget.take
        chunks = [Chunk.at(source.read, one.chunk, one.chunk_end, take) for one in self._parts]
        self.head, self._chunks = chunks[0], chunks[1:]
        if self.head.kind != "trace":
            raise DamagedError("it does not begin with what a trace begins with")
        if self.head.about.get("format") not in COLUMNAR:
            raise another_version(path, self.head.about.get("format"))
        if any(one.kind == "trace" for one in self._chunks):
            raise two_traces(path)
        _same("chunks of columns", len(self._chunks), self.head.size("chunks"))
        self._budget.take(self.head.room)
        for one in self._chunks:
            self._budget.take(room(one, len(self.args)))
        self._check_rows()

    def _check_rows(self) -> None:
        """Raise an error unless all rows are there, and events in order."""
        for kind in _ROW_BYTES:
            rows = sum(one.size("rows") for one in self.chunks(kind))
            _same(kind, rows, rows_told(self.head, kind))
        reach = [one.pair("slots") for one in self.chunks("events")]
        if any(last >= first for (_, last), (first, _) in pairwise(reach)):
            raise DamagedError("its chunks of events are not in order")

    def chunks(self, kind: str) -> list[Chunk]:
        """Return the chunks of ``"slots"``, ``"others"``, ``"totals"`` or ``"events"``.

        The heads of those of events have ``rows``, and from what to what they reach: ``slots``,
        ``launches``, and ``time`` in Unix ns.
        """
        return [one for one in self._chunks if one.kind == kind]

    def check_packets(self) -> None:
        """Refuse columns that were not written with these packets.

        Raises:
            DamagedError: packets were changed, or are missing.
        """
        for part, chunk in zip(self._parts, [self.head, *self._chunks], strict=True):
            check_seal(self._source, part, chunk, self._budget)

    @cached_property
    def _facts(self) -> Facts:
        found = self.head.json("facts")
        if not isinstance(found, dict):
            raise DamagedError("its facts are damaged")
        return found

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The launches."""
        launches = small_tables.launches_of(self._facts)
        _same("launches", len(launches), self.head.size("launches"))
        return launches

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The regions."""
        return small_tables.regions_of(self._facts)

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The names of roles."""
        return small_tables.roles_of(self._facts)

    @cached_property
    def provenance(self) -> dict[str, str]:
        """Where the trace comes from."""
        return small_tables.provenance_of(self._facts)

    @cached_property
    def args(self) -> list[dict[str, str]]:
        """Name and type of each argument."""
        return small_tables.args_of(self._facts)

    @cached_property
    def slots(self) -> Slots:
        """All slots."""
        return self._warps("slots")

    @cached_property
    def others(self) -> Slots:
        """Warps that left no records."""
        return self._warps("others")

    def _warps(self, kind: str) -> Slots:
        warps = unpack_rows(Slots, self.chunks(kind))
        check_slots(warps, len(self.launches), len(self.roles))
        return warps

    def columns(self, chunks: Iterable[Chunk], wanted: Sequence[str]) -> Columns:
        """Return some of the columns of :class:`ikp.core.trace.Events`, of some chunks' events."""
        table = self.table(list(chunks), wanted)
        return table.columns

    def trace(self, chosen: Choose | None = None) -> Trace:
        """Return the trace; with the events of all chunks, or of those chosen by their heads."""
        chunks = [one for one in self.chunks("events") if chosen is None or chosen(one)]
        totals = unpack_rows(Totals, self.chunks("totals"))
        check_totals(totals, len(self.slots), len(self.regions))
        kinds = [small_tables.KINDS[one["type"]] for one in self.args]
        table = self.table(chunks, ALL, kinds)
        args = {one["name"]: table.arg(number) for number, one in enumerate(self.args)}
        events = Events(**{name: table.columns[name] for name in ALL})
        _check_arrows(args)
        if len(totals) and len(
            np.intersect1d(self.slots.launch[events.slot], self.slots.launch[totals.slot])
        ):
            raise DamagedError("a launch has both events and totals")
        return Trace(
            launches=self.launches,
            regions=self.regions,
            slots=self.slots,
            events=events,
            provenance=self.provenance,
            roles=self.roles,
            args=args,
            totals=totals,
            others=self.others,
        )

    def table(
        self, chunks: list[Chunk], wanted: Sequence[str], args: Sequence[str] = ()
    ) -> EventTable:
        """Return the table of some chunks' events."""
        rows = sum(one.size("rows") for one in chunks)
        table = EventTable(rows, wanted, tuple(args), self.head.size("slots"), len(self.regions))
        for one in track(chunks, len(chunks), f"reading {self._path}"):
            table.fill(one)
        return table


def rows_told(head: Chunk, kind: str) -> int:
    """Return how many rows of a table a file must hold; of one that it doesn't name, none.

    Raises:
        DamagedError: it doesn't say, or not with a number.
    """
    return head.size(kind) if kind in head.about or kind != "others" else 0


def room(chunk: Chunk, args: int) -> int:
    """Return what the rows of a chunk take in memory.

    Raises:
        DamagedError: a column has more rows than its chunk's head says.
    """
    if chunk.kind not in _ROW_BYTES:
        raise DamagedError(f"it has columns of {chunk.kind!r}, which there are not")
    rows = chunk.size("rows")
    if any(one.rows > rows for one in chunk.pieces.values() if one.type != JSON):
        raise DamagedError("a column has more rows than its chunk's head says")
    texts = sum(one.rows for one in chunk.pieces.values() if one.type == JSON)
    return texts + rows * (_ROW_BYTES[chunk.kind] + args * _ARG_BYTES)


def _same(what: str, found: int, stated: int) -> None:
    if found != stated:
        raise DamagedError(f"it holds {found} of {stated} {what}")


def _check_arrows(args: dict[str, ArgColumn]) -> None:
    for name, column in args.items():
        if is_flow(name) and column.values.dtype.kind != "i" and bool(np.any(column.given)):
            raise DamagedError("an arrow's number is no integer")
