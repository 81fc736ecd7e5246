"""What the trace processor knows of a loaded trace, in the terms of the trace model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.trace_processor.query import Column, columns

if TYPE_CHECKING:
    from perfetto.trace_processor import TraceProcessor

OTHER, SUMMARY, OVERVIEW, LAUNCH, BLOCKS, WARP = range(6)
"""Roles of tracks."""

COUNTERS = (
    "resident blocks",
    "resident recorded blocks",
    "active warps",
    "active recorded warps",
)
LAYOUT = re.compile(
    r"(\d+)/SM (-?\d+)(?: · lane (\d+))?(?:/warp (\d+)(?: [^/]+)?(?:/overlap (\d+))?)?"
)
STAGES = "gpu_render_stage"
"""Perfetto's type of tracks that show launches as it has kernels."""
LAST = 1 << 30
"""Rank of the row about the file."""


@dataclass(frozen=True)
class Found:
    """All slices, one row each, with what their tracks say about them.

    Columns: id, ts, dur, name, track, parent (-1: none), depth, arguments (-1: none), role, launch,
    sm, lane, warp, overlap (0: the warp's own track).
    """

    processor: TraceProcessor
    slices: dict[str, Column]

    def with_role(self, role: int) -> dict[str, Column]:
        """Return the slices on tracks of one role."""
        rows = self.slices["role"] == role
        return {name: column[rows] for name, column in self.slices.items()}

    def integers(self, name: str, slices: dict[str, Column], default: int) -> Column:
        """Return an integer argument of each of the given slices."""
        found = columns(
            self.processor, f"select arg_set_id s, int_value v from args where key = 'debug.{name}'"
        )
        return _joined(slices["arguments"], found["s"], found["v"], default)

    def numbers(self, name: str, slices: dict[str, Column]) -> tuple[Column, Column]:
        """Return an argument of any type of each of the given slices, and Perfetto's type of it."""
        found = columns(
            self.processor,
            "select arg_set_id s, int_value i, real_value r, value_type t from args"
            f" where key = 'debug.{name}'",
        )
        values = np.where(found["t"] == "real", found["r"], found["i"])
        sets = slices["arguments"]
        return _joined(sets, found["s"], values, 0), _joined(sets, found["s"], found["t"], "")


def _joined(wanted: Column, sets: Column, values: Column, default: Any) -> Column:
    """Return the value that belongs to each wanted set of arguments."""
    result = np.full(len(wanted), default, values.dtype if len(values) else object)
    order = np.argsort(sets.astype(np.int64))
    keys = sets[order].astype(np.int64)
    at = np.searchsorted(keys, wanted)
    there = np.append(keys, -2)[at] == wanted
    result[there] = values[order][at[there]]
    return result


def load(processor: TraceProcessor) -> Found:
    """Ask for all slices and tracks."""
    slices = columns(
        processor,
        "select id, ts, dur, name, track_id track, coalesce(parent_id, -1) parent, depth,"
        " coalesce(arg_set_id, -1) arguments from slice"
        f" where track_id not in (select id from track where type = '{STAGES}') order by id",
    )
    paths = track_paths(processor)
    parts = {track: _parts(path) for track, path in paths.items()}
    of_slices = [parts[track] for track in slices["track"].tolist()]
    names = ("role", "launch", "sm", "lane", "warp", "overlap")
    assert OTHER not in {part[0] for part in of_slices}, "there are slices where none belong"
    table = np.array(of_slices, np.int64).reshape(-1, len(names))
    return Found(processor, slices | {name: table[:, i] for i, name in enumerate(names)})


def track_paths(processor: TraceProcessor) -> dict[int, str]:
    """Return where each track lies: ``3/SM 12/warp 0`` in the third launch, counted from 1.

    The rows of all launches are called ``all/...``, and the one about the file ``about``.
    """
    found = columns(
        processor,
        "select id, coalesce(name, '') name, coalesce(parent_id, -1) parent,"
        " extract_arg(source_arg_set_id, 'sibling_order_rank') rank from track",
    )
    names, parents, ranks = (
        dict(zip(found["id"].tolist(), found[column].tolist(), strict=True))
        for column in ("name", "parent", "rank")
    )

    def path(track: int) -> str:
        parent, name = parents[track], names[track]
        if parent < 0:
            return f"all/{name}"
        if parents[parent] >= 0 or name in COUNTERS:
            return f"{path(parent)}/{name}"
        if ranks[track] < 0:
            return f"{path(parent)}/{name}"
        return "about" if ranks[track] == LAST else str(ranks[track])

    return {track: path(track) for track in names}


def _parts(path: str) -> tuple[int, ...]:
    if path == "about":
        return (SUMMARY, -1, 0, 0, 0, 0)
    if path.startswith("all/"):
        return (OVERVIEW, -1, 0, 0, 0, 0)
    launch, _, rest = path.partition("/")
    if not rest:
        return (LAUNCH, int(launch) - 1, 0, 0, 0, 0)
    match = LAYOUT.fullmatch(path)
    assert match, f"there is a track that nobody asked for: {path}"
    _, sm, lane, warp, overlap = match.groups()
    role = BLOCKS if warp is None else WARP
    return (role, int(launch) - 1, int(sm), int(lane or 0), int(warp or 0), int(overlap or 0))


def warp_roles(processor: TraceProcessor) -> list[tuple[tuple[int, int, int], str]]:
    """Return launch, SM and warp of each warp's track, and the role in its name."""
    found = []
    for path in track_paths(processor).values():
        match = re.fullmatch(r"(\d+)/SM (\d+)[^/]*/warp (\d+) ?([^/]*)", path)
        if match:
            found.append(((int(match[1]) - 1, int(match[2]), int(match[3])), match[4]))
    return found


def check_import(processor: TraceProcessor) -> None:
    """Fail if anything was lost or complained about when the file was loaded."""
    losses = columns(
        processor,
        "select name, severity, value from stats where value != 0"
        f" and (severity in ('error', 'data_loss') or name in {QUIET_LOSSES})",
    )
    assert not len(losses["name"]), f"the trace processor complains: {losses}"
    open_ended = columns(processor, "select count(*) n from slice where dur < 0")["n"][0]
    assert not open_ended, f"{open_ended} slices were never closed"


QUIET_LOSSES = (
    "track_event_tokenizer_errors",
    "track_event_parser_errors",
    "tokenizer_skipped_packets",
    "interned_data_tokenizer_errors",
    "clock_sync_failure",
    "flow_step_without_start",
    "flow_end_without_start",
)
"""What the trace processor counts without calling it an error."""


def check_order(processor: TraceProcessor) -> None:
    """Fail unless rows are in order: counters, SMs, lanes, warps and overlaps by their numbers."""
    found = columns(
        processor,
        "select t.parent_id parent, t.name,"
        " extract_arg(t.source_arg_set_id, 'sibling_order_rank') rank,"
        " extract_arg(p.source_arg_set_id, 'child_ordering') ordering"
        " from track t join track p on t.parent_id = p.id where p.parent_id is not null",
    )
    assert set(found["ordering"].tolist()) <= {"explicit"}, "rows are ordered by their names"
    for parent in set(found["parent"].tolist()):
        rows = np.flatnonzero(found["parent"] == parent)
        ranks, names = found["rank"][rows].tolist(), found["name"][rows].tolist()
        assert len(set(ranks)) == len(ranks), f"the order of {names} is not told"
        shown = [name for _, name in sorted(zip(ranks, names, strict=True))]
        assert shown == sorted(shown, key=_natural), f"rows are misplaced: {shown}"


def _natural(name: str) -> tuple[int, list[int]]:
    """Return what a row is ordered by: counters in front, the rest by the numbers in its name."""
    numbers = [int(one) for one in re.findall(r"-?\d+", name)]
    return (COUNTERS.index(name) if name in COUNTERS else len(COUNTERS)), numbers
