"""What is out of the ordinary in a recording, decoded from bytes, in every built-in format."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

import ikp
from ikp import plugins
from ikp.core.abi import OverflowMode
from ikp.core.decoding.decode import decode
from ikp.core.trace import of_class
from ikp.trace import Trace
from tests.exporters.perfetto.examples import assert_same
from tests.others import SEVENTH, chosen_blocks
from tests.segments import Device, Launch, Record, Segment, Sm, Warp, nbytes
from tests.trace_processor import check_trace, columns, open_trace
from tests.trace_processor.found import check_import

TURN = ((1 << 33) - Sm().origin) * 10**9 // Sm().hz
"""When the low 32 bits of the clock come round first, in ns."""
AGAIN = TURN + (1 << 32) * 10**9 // Sm().hz


def trace(records: list[Record], **options: Any) -> Trace:
    """Return what two warps recorded, of which the second never reached its end."""
    finish = options.pop("finish", 10**7)
    warps = {(0, 0): Warp(records, finish=finish), (1, 0): Warp(records[:2], finish=None, sm=1)}
    launch = Launch(warps, grid=(2, 1, 1), overflow=options.pop("overflow", OverflowMode.STOP))
    segment = Segment(nbytes(launch.slots, options.pop("room", 16)))
    segment.run(launch)
    return of_class(Trace, decode([segment.source()]))


def sampled() -> Trace:
    """Return what two of nine blocks recorded, where the others left when they ran."""
    work = {
        (block, warp): Warp([Record(100 + block, 200 + block)], sm=block % 2)
        for block in range(9)
        for warp in range(2)
    }
    launch = Launch(work, grid=(9, 1, 1), block=(64, 1, 1))
    return of_class(Trace, decode([chosen_blocks(launch, SEVENTH, 4, Device())]))


def numbered(spans: list[tuple[int, int | None]]) -> list[Record]:
    return [Record(a, b, 1 + i % 3, np.uint32(i)) for i, (a, b) in enumerate(spans)]


CASES = {
    "overlapping": trace(numbered([(100, 400), (200, 500), (300, 600), (10, 700)])),
    "of no duration": trace(numbered([(100, 100), (100, 100), (100, None), (90, 100)])),
    "unfinished": trace(numbered([(100, 200), (300, 400)]), finish=None),
    "a ring that is full": trace(
        numbered([(10 * i, 10 * i + 5) for i in range(1, 90)]), overflow=OverflowMode.WRAP
    ),
    "a slot that is full": trace(numbered([(10 * i, 10 * i + 5) for i in range(1, 90)])),
    "across a turn of the clock": trace(
        numbered([(100, 200), (TURN - 50, TURN + 50), (AGAIN - 9, AGAIN + 9)]),
        finish=2 * AGAIN,
    ),
    "nothing": trace([]),
    "of a sample of blocks": sampled(),
}
every_case = pytest.mark.parametrize("made", CASES.values(), ids=CASES)


def chrome(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    facts = ((event, event.get("args", {})) for event in json.loads(text)["traceEvents"])
    # Those of launches and blocks tell of a block, too.
    return [event for event, args in facts if "block" in args and not {"grid", "warps"} & set(args)]


def total(node: dict[str, Any]) -> int:
    return int(node["metrics"]["time (ns)"]) + sum(map(total, node["children"]))


def outermost(made: Trace) -> int:
    """Return how long the ranges lasted that lie in no other one on their lane."""
    from ikp.core.lanes import arrange

    events = made.events
    chosen = events.kind == 1
    slot, start, end = (column[chosen] for column in (events.slot, events.start_ns, events.end_ns))
    stream = arrange(slot, start, end, np.ones(len(slot), bool))
    places = (slot, stream.lane, stream.opens, stream.closes)
    spans = list(zip(*(column.tolist() for column in places), strict=True))
    return sum(
        int(end[i] - start[i])
        for i, (s, lane, opens, closes) in enumerate(spans)
        if not any(
            (s, lane) == other[:2] and other[2] < opens and other[3] > closes for other in spans
        )
    )


@every_case
def test_each_format_holds_every_event(made: Trace, tmp_path: Path) -> None:
    ranges, instants = len(list(made.ranges())), len(list(made.instants()))
    lasted = sum(one.duration_ns for one in made.ranges())
    for suffix in (".json", ".json.gz"):
        made.save(tmp_path / f"t{suffix}")
        found = chrome(tmp_path / f"t{suffix}")
        assert [sum(e["ph"] == phase for e in found) for phase in "Xi"] == [ranges, instants]
        assert round(sum(e.get("dur", 0) for e in found) * 1000) == lasted
    made.save(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        assert sum(int(row["dur_ns"]) for row in csv.DictReader(file)) == lasted
    made.save(tmp_path / "t.parquet")
    table = parquet.read_table(tmp_path / "t.parquet")
    assert (len(table), sum(table["dur_ns"].to_pylist())) == (ranges + instants, lasted)
    made.save(tmp_path / "t.hatchet")
    root, _ = json.loads((tmp_path / "t.hatchet").read_text())
    assert total(root) == outermost(made)
    made.save(tmp_path / "t.pftrace")
    assert_same(ikp.load(tmp_path / "t.pftrace"), made)


@pytest.mark.tp
@every_case
def test_viewers_load_it(made: Trace, tmp_path: Path) -> None:
    made.save(tmp_path / "t.pftrace")
    check_trace(tmp_path / "t.pftrace", made)
    made.save(tmp_path / "t.json")
    with open_trace(tmp_path / "t.json") as processor:
        check_import(processor)
        sql = "select count(*) n from slice join thread_track t on t.id = track_id join thread"
        sql += " using (utid) where thread.name glob '* warp *'"
        assert columns(processor, sql)["n"][0] == len(made.events)


def test_the_cases_are_what_they_say() -> None:
    assert CASES["a ring that is full"].dropped > 0 < CASES["a slot that is full"].dropped
    assert CASES["unfinished"].launches[0].unfinished == 2
    turned = list(CASES["across a turn of the clock"].ranges())
    assert [one.duration_ns for one in turned] == [100, 100, 18, 100, 100]
    assert [turned[i].start_ns - turned[0].start_ns for i in (1, 2)] == [
        TURN - 150,
        AGAIN - 109,
    ]
    assert [one.duration_ns for one in CASES["of no duration"].ranges()][:2] == [0, 0]


def test_every_built_in_format_is_tested_here() -> None:
    built_in = {"chrome", "csv", "folded", "hatchet", "parquet", "perfetto", "speedscope"}
    assert set(plugins.names(plugins.EXPORTERS)) == built_in
