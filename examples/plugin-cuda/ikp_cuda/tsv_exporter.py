"""Traces as tab-separated values: one row per event, for spreadsheets and shell tools."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ikp.plugins import ExportError, abi

if TYPE_CHECKING:
    from ikp.plugins import Trace

INTERFACE = 2
"""The version of ikp's plugin interface that this was written for."""

COLUMNS = (
    "launch",  # position in the trace, from 0
    "label",
    "block",  # linear
    "warp",  # in its block
    "sm",
    "region",
    "kind",  # range, instant
    "start_ns",  # Unix time
    "end_ns",
    "ticks",  # of the launch's clock
    "payload_type",  # none, u32, i32, f32
    "payload",  # empty where there is none
)


class TsvExporter:
    """Writes one row per event, in the trace's order. Losses and clock fits are left out."""

    interface = INTERFACE
    suffixes = (".tsv",)

    def write(self, trace: Trace, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write ``trace`` to ``path``, all of it or nothing.

        Raises:
            ExportError: the file exists and ``force`` is false, or the path can't be written.
        """
        with _replacing(Path(fspath(path)), force) as file:
            table = csv.writer(file, csv.excel_tab)
            table.writerow(COLUMNS)
            table.writerows(rows(trace))


def rows(trace: Trace) -> Iterator[tuple[Any, ...]]:
    """Yield the row of each event; numbers print so that they read back exactly."""
    slots, events = trace.slots, trace.events
    labels = [launch.label for launch in trace.launches]
    regions = [region.name for region in trace.regions]
    for launch, block, warp, sm, region, kind, start, end, ticks, payload_type, value in zip(
        slots.launch[events.slot].tolist(),
        slots.block[events.slot].tolist(),
        slots.warp[events.slot].tolist(),
        slots.sm[events.slot].tolist(),
        events.region.tolist(),
        events.kind.tolist(),
        events.start_ns.tolist(),
        events.end_ns.tolist(),
        events.ticks.tolist(),
        events.payload_type.tolist(),
        trace.payload.tolist(),
        strict=True,
    ):
        event = (regions[region], abi.Kind(kind).name.lower(), start, end, ticks)
        yield (launch, labels[launch], block, warp, sm, *event, *_payload(payload_type, value))


def _payload(kind: int, value: float) -> tuple[str, int | float | str]:
    payload_type = abi.PayloadType(kind)
    number: int | float | str = value
    if payload_type is abi.PayloadType.NONE:
        number = ""
    elif payload_type is not abi.PayloadType.F32:
        number = int(value)
    return payload_type.name.lower(), number


@contextmanager
def _replacing(target: Path, force: bool) -> Iterator[TextIO]:
    """Open a file beside ``target`` that takes its place when all is written."""
    if target.exists() and not force:
        raise ExportError(
            f"{target} exists: pass force=True to overwrite it, or name another file."
        )
    part = target.with_name(target.name + ".part")
    try:
        try:
            with part.open("w", newline="", encoding="utf-8") as file:
                yield file
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ExportError(f"{target} can't be written: {error.strerror or error}.") from error
