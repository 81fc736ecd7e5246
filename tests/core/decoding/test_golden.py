"""Segments decode to what they always did: ``golden.json`` is from before there were chunks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from ikp.core.abi import OverflowMode
from ikp.core.decoding import _records
from ikp.core.decoding.decode import decode
from ikp.core.trace import Trace
from tests.core.decoding.checks import assert_same
from tests.fuzz.segments import Subject, subjects

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text(encoding="utf-8"))


def digest(trace: Trace) -> dict[str, str]:
    """Return a fingerprint of each table, and of what is said of the launches."""
    found = {}
    for name in ("slots", "events", "totals"):
        table = getattr(trace, name)
        columns = (getattr(table, column) for column in table.__dataclass_fields__)
        content = b"".join(np.asarray(column, "<i8").tobytes() for column in columns)
        found[name] = hashlib.sha256(content).hexdigest()[:16]
    names = repr([(r.id, r.name) for r in trace.regions]) + repr(trace.roles)
    notes = "\n".join(note for launch in trace.launches for note in launch.notes)
    found["texts"] = hashlib.sha256((names + notes).encode()).hexdigest()[:16]
    return found


def older() -> list[Subject]:
    """Return the segments of the kinds that there were before there were chunks."""
    return [one for one in subjects() if OverflowMode.STREAM.name not in one.name]


def test_segments_of_every_kind_decode_as_before() -> None:
    assert {one.name: digest(one.trace) for one in older()} == GOLDEN["alone"]


def test_segments_of_every_kind_decode_together_as_before() -> None:
    assert digest(decode([one.source for one in older()])) == GOLDEN["together"]


@pytest.mark.parametrize("records", [1, 2, 3, 7])
def test_where_chunks_end_changes_nothing(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_records, "CHUNK_RECORDS", records)
    for one in subjects():
        assert_same(one.trace, decode([one.source]))
