"""Many segments pass through little memory, and one hears how far they have come."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest

from ikp.core.decoding import _batch, _records
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from tests.segments import Launch, Record, Segment, Warp, nbytes


def recorded(label: str, warps: int) -> SegmentSource:
    """Return a segment of 12 slots in which some warps recorded."""
    segment = Segment(nbytes(12, 5))
    if warps:
        work = Warp([Record(100 * i, 100 * i + 50) for i in range(3)])
        segment.run(Launch(dict.fromkeys([(b, 0) for b in range(warps)], work), (12, 1, 1)))
    return segment.source(label)


def test_segments_are_let_go_as_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_batch, "_LAUNCHES", 1)
    alive: list[weakref.ref[object]] = []
    most = 0

    def sources() -> Iterator[SegmentSource]:
        nonlocal most
        for label in map(str, range(8)):
            source = recorded(label, 6)
            alive.append(weakref.ref(source.data))
            most = max(most, sum(each() is not None for each in alive))
            yield source

    assert len(decode(sources()).launches) == 8
    assert most <= 3
    assert not any(each() is not None for each in alive)


def test_how_far_it_has_come_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_records, "CHUNK_RECORDS", 4)
    told: list[float] = []
    decode([recorded("k", warps) for warps in (6, 6, 0, 12)], progress=told.append)
    assert len(told) > 8
    assert all(0 < more < 1 for more in told)
    assert sum(told) == pytest.approx(3)  # of one launch nothing came


@pytest.mark.parametrize("others", [0, 2])
def test_slots_without_room_for_a_header_hold_nothing(others: int) -> None:
    segment = Segment(nbytes(0, 0) + 12 * 32)
    segment.run(Launch({}, (12, 1, 1)))
    trace = decode([segment.source(), *(recorded("k", 3) for _ in range(others))])
    assert [each.kept for each in trace.launches] == [0] + [9] * others
    assert "too small for 12 warps" in trace.launches[0].notes[0]
