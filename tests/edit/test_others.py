"""Edits keep warps that left no records where they keep those that did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ikp.core.trace import Trace, faults
from ikp.edit import concat, cut, group_by, rename_warps, select, shift
from ikp.errors import UsageError
from tests.exporters.perfetto.examples import START, launch, warps
from tests.others import without_records


def recorded() -> Trace:
    """Return a launch of four blocks one after another on two SMs, and one of two more.

    The blocks 0 and 2 of the first left records, and block 1 of the second.
    """
    spans = [(0, 0, 10), (1, 0, 12), (0, 10, 20), (1, 12, 25), (0, 100, 110), (1, 100, 130)]
    trace = warps([[(begin + 1, end - 1)] for _, begin, end in spans], blocks=spans)
    numbers = np.array([0, 0, 0, 0, 1, 1], np.int32)
    slots = replace(trace.slots, launch=numbers, block=np.array([0, 1, 2, 3, 0, 1]))
    both = replace(trace, slots=slots, launches=(launch("a"), launch("b")))
    return without_records(both, {(0, 1), (0, 3), (1, 0)})


def told(trace: Trace) -> list[tuple[int, int, int]]:
    """Return launch, block and start of each warp that left no records."""
    assert not faults(trace)
    columns = trace.others.launch, trace.others.block, trace.others.start_ns - START
    return [*zip(*(column.tolist() for column in columns), strict=True)]


EVERY = [(0, 1, 0), (0, 3, 12), (1, 0, 100)]


def test_what_they_are() -> None:
    assert told(recorded()) == EVERY


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({"launch": "b"}, [(0, 0, 100)]),
        ({"launch": 0}, EVERY[:2]),
        ({"sm": 1}, EVERY[:2]),
        ({"sm": 0}, EVERY[2:]),
        ({"block": 3}, EVERY[1:2]),
        ({"region": "load"}, EVERY),
        ({"window_ns": (0, 5)}, EVERY),
    ],
    ids=str,
)
def test_select(asked: dict[str, object], left: list[tuple[int, int, int]]) -> None:
    assert told(select(recorded(), **asked)) == left  # type: ignore[arg-type]


def test_a_block_that_no_warp_has_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no warp has block=7; the trace has 0, 1, 2, 3"):
        select(recorded(), block=7)


def test_cut_counts_from_the_first_of_all() -> None:
    assert told(cut(recorded(), 11, 20)) == [(0, 1, 0), (0, 3, 12)]
    assert told(cut(recorded(), 21, 50)) == [(0, 3, 12)]
    assert len(cut(recorded(), 21, 50).slots) == 0
    with pytest.raises(UsageError, match="the trace lasts 130 ns"):
        cut(recorded(), 40, 90)


def test_concat_numbers_their_launches_anew() -> None:
    both = concat([recorded(), recorded()])
    assert told(both) == EVERY + [(number + 2, *rest) for number, *rest in EVERY]  # type: ignore[misc]


def test_shift_moves_them_along() -> None:
    assert [start for *_, start in told(shift(recorded(), 1000))] == [1000, 1012, 1100]
    with pytest.raises(UsageError):
        shift(recorded(), -START - 1)


def test_roles_are_theirs_too() -> None:
    named = rename_warps(recorded(), lambda block, _: f"role {block % 2}")
    assert [named.roles[role] for role in named.others.role.tolist()] == [
        "role 1",
        "role 1",
        "role 0",
    ]


def test_groups_of_events_have_none() -> None:
    assert told(group_by(recorded(), "region")) == []
