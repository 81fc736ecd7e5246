"""Runs that are timed: each launch is queued before its time begins, or launched again."""

from collections.abc import Iterable

import pytest

from ikp.checking.runner import _Loaded

pytestmark = pytest.mark.any_pins


def timed(answers: Iterable[tuple[float, bool]]) -> tuple[float, list[int]]:
    """Time a run whose launches give these answers; return its seconds, and how often it cleared.

    Before each launch memory is prepared.
    """
    form, rest, cleared, prepared = object.__new__(_Loaded), iter(answers), [], []

    def once(limit: float, delay: int, clears: int) -> tuple[float, bool]:
        del limit, delay
        cleared.append(clears)
        return next(rest)

    form._timed = once  # type: ignore[method-assign]
    took = form.timed(1.0, 0, lambda: prepared.append(len(cleared)))
    assert prepared == [*range(len(cleared))]
    return took, cleared


def test_a_launch_that_was_queued_too_late_is_launched_again_behind_more() -> None:
    took, cleared = timed([(9.0, False), (5.0, True)])
    assert took == 5.0 and len(cleared) == 2 and cleared[0] < cleared[1]
    assert len(timed([(5.0, True), (4.0, True)])[1]) == 1, "the first was in time"


def test_where_no_launch_is_in_time_the_one_behind_most_counts() -> None:
    took, cleared = timed([(9.0, False), (7.0, False), (6.0, False)])
    assert took == 6.0 and cleared == sorted(cleared)
