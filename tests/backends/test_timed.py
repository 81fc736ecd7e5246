"""Which launches are timed, without a device; tests/backends/driver has the driver's part."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ikp.backends.timed import ASKED, LEAST, MOST, Timed, _error
from ikp.core.turns import IN_TURN
from ikp.driver import cuda
from ikp.errors import PatchError

GRID = (12, 1, 1)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The pairs that were recorded; a pair's time is its number, in us."""
    recorded: list[tuple[int, int]] = []
    made = iter(range(1, 10_000))
    monkeypatch.setattr(cuda, "event", lambda: next(made))
    monkeypatch.setattr(cuda, "context_number", lambda: 1)
    monkeypatch.setattr(cuda, "capturing", lambda stream: stream == 9)
    monkeypatch.setattr(cuda, "time_next", lambda *pair: recorded.append(pair) or True)
    monkeypatch.setattr(cuda, "elapsed_us", lambda first, _: float(first))
    monkeypatch.setattr(cuda, "destroy_event", lambda _: None)
    return recorded


def test_a_function_is_asked_about_until_all_its_grids_are_timed(
    events: list[tuple[int, int]],
) -> None:
    timed, facts = Timed(), dict[str, str]()
    assert not timed.plain(4, GRID, 0)
    timed.recorded(4, GRID, "k", facts)
    timed.recorded(4, (13, 1, 1), "k", facts)
    assert all(timed.plain(4, GRID, 0) for _ in range(MOST)) and timed.plain(4, (14, 1, 1), 0)
    assert len(events) == 2 + MOST
    assert [timed.plain(4, (13, 1, 1), 0) for _ in range(MOST)] == [True] * (MOST - 1) + [False]
    assert not timed.plain(5, GRID, 0)


def test_threads_that_launch_at_once_destroy_each_late_launchs_events_once(
    events: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule: late launches take no place, and no event is asked about once it is destroyed."""
    destroyed: list[int] = []

    def took(first: int, _: int) -> float:
        time.sleep(0)
        assert first not in destroyed
        return -1.0

    monkeypatch.setattr(cuda, "elapsed_us", took)
    monkeypatch.setattr(cuda, "destroy_event", destroyed.append)
    timed = Timed()
    timed.recorded(4, GRID, "k", {})
    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(timed.plain, 4, GRID, 0) for _ in range(ASKED)]:
            each.result()
    assert len(destroyed) == len(set(destroyed)) and len(destroyed) > 2 * (ASKED - 4 * MOST)


def test_recorded_launches_are_timed_a_few_times_late_or_not(
    events: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch that is timed is not repeated without Python."""
    monkeypatch.setattr(cuda, "elapsed_us", lambda *_: -1.0)
    timed = Timed()
    found = [timed.recorded(4, GRID, "k", {}) for _ in range(3 * MOST)]
    assert found == [True] * MOST + [False] * 2 * MOST


def test_it_ends_though_a_grid_never_comes_again(events: list[tuple[int, int]]) -> None:
    timed = Timed()
    timed.recorded(4, GRID, "k", {})
    asked = [timed.plain(4, (1, 1, 1), 0) for _ in range(ASKED + 1)]
    assert asked == [True] * ASKED + [False] and len(events) == 1


def test_launches_in_a_capture_have_no_events(events: list[tuple[int, int]]) -> None:
    timed = Timed()
    timed.recorded(4, GRID, "k", {})
    assert timed.plain(4, GRID, 9) and len(events) == 1
    assert timed.plain(4, GRID, 0) and len(events) == 2


def test_nothing_is_timed_once_a_launch_overlaps(events: list[tuple[int, int]]) -> None:
    timed = Timed()
    timed.recorded(4, GRID, "k", {})
    timed.stop()
    assert not timed.recorded(4, GRID, "k", {}) and not timed.plain(4, GRID, 0)
    assert len(events) == 1


def test_medians_leave_out_the_first_and_need_some(events: list[tuple[int, int]]) -> None:
    timed, facts = Timed(), dict[str, str]()
    for _ in range(4):
        timed.recorded(4, GRID, "k", facts)
    timed.recorded(6, GRID, "other", facts)
    for function in (4, 6):
        for _ in range(5):
            timed.plain(function, GRID, 0)
    timed.report()
    assert list(facts) == ["timed k", "timed other"]
    other = json.loads(facts["timed other"])
    assert other["recorded_us"] is None and other["launches"] == [0, 4]
    made = json.loads(facts["timed k"])
    assert made["recorded_us"] == 5.0 and made["plain_us"] == 16.0  # pairs 3, 5, 7; 13 to 19
    assert made["launches"] == [3, 4] and made["grid"] == list(GRID)
    timed.report()
    assert len(facts["timed k"].splitlines()) == 1


@pytest.mark.parametrize("numbers", [IN_TURN, range(0, 16, 2), (0, 3, 6, 9, 12)])
@pytest.mark.parametrize("drift", [-0.5, 0.0, 2.0])
@pytest.mark.parametrize("late", [(), (0, 1, 2), (10,)])
def test_what_changes_from_launch_to_launch_is_not_laid_to_recording(
    events: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    numbers: Sequence[int],
    drift: float,
    late: tuple[int, ...],
) -> None:
    """The rule: where both kinds come in turn, a drift is in both."""
    took: dict[int, float] = {}
    monkeypatch.setattr(cuda, "elapsed_us", lambda first, _: took.get(first))
    timed, facts = Timed(), dict[str, str]()
    for number in range(20):
        chosen = number in numbers
        timed.recorded(4, GRID, "k", facts) if chosen else timed.plain(4, GRID, 0)
        us = 100 + drift * number + 10 * chosen
        took.setdefault(events[-1][0], 0.0 if number in late else us)
    timed.report()
    made = json.loads(facts["timed k"])
    assert made["in_turn"] and min(made["launches"]) >= LEAST
    assert made["recorded_us"] - made["plain_us"] == pytest.approx(10, abs=2 * abs(drift))
    assert drift or made["error_us"] == 0


@pytest.mark.parametrize("number", [4, 6, 8])
@pytest.mark.parametrize("spread", ["normal", "exponential"])
def test_the_stated_error_holds_in_95_of_100(number: int, spread: str) -> None:
    """The rule: the median of a few differences is within its error of what many would say."""
    drawn = getattr(np.random.default_rng(7), "standard_" + spread)((2000, number))
    true = {"normal": 0.0, "exponential": math.log(2)}[spread]
    held = [abs(statistics.median(each) - true) <= _error(each) for each in drawn.tolist()]
    assert 0.95 <= sum(held) / len(held) < 0.99


@pytest.mark.parametrize("launches", range(5, 14))
def test_a_few_launches_in_turn_are_enough(
    events: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    """The rule: a program that launches a kernel 11 times has three pairs, without a choice."""
    monkeypatch.setattr(cuda, "elapsed_us", lambda *_: 7.0)
    timed, facts = Timed(), dict[str, str]()
    for number in range(launches):
        chosen = number in IN_TURN
        timed.recorded(4, GRID, "k", facts) if chosen else timed.plain(4, GRID, 0)
    timed.report()
    made = json.loads(facts["timed k"]) if facts else {"in_turn": False}
    assert made["in_turn"] == (launches >= 11)
    if launches >= 11:
        assert made["launches"] == [3 + (launches == 13)] * 2


def test_launches_that_do_not_come_in_turn_are_told_apart_as_wholes(
    events: list[tuple[int, int]],
) -> None:
    timed, facts = Timed(), dict[str, str]()
    for _ in range(6):
        timed.recorded(4, GRID, "k", facts)
    for _ in range(6):
        timed.plain(4, GRID, 0)
    timed.report()
    assert not json.loads(facts["timed k"])["in_turn"]


def test_events_that_no_launch_records_are_destroyed(
    events: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule: an event is a launch's, or it is destroyed; and then no launch records it."""
    destroyed: list[int] = []
    monkeypatch.setattr(cuda, "destroy_event", destroyed.append)
    timed, facts = Timed(), dict[str, str]()
    timed.recorded(4, GRID, "k", facts)
    timed.ended(failed=True)
    assert destroyed == [*events[0]] == [1, 2] and events[1:] == [(0, 0)]
    timed.ended(failed=True)  # a launch that is not timed
    assert len(destroyed) == 2
    for _ in range(MOST):
        assert timed.recorded(4, GRID, "k", facts), "what failed takes no place"
        timed.ended(failed=False)
    monkeypatch.setattr(cuda, "time_next", lambda *_: False)
    timed.plain(4, GRID, 0)
    assert len(destroyed) == 4, "without the hook library"
    once = iter([99])
    monkeypatch.setattr(cuda, "event", lambda: next(once, None) or _refuse())
    other = Timed()
    other.recorded(4, GRID, "k", facts)
    assert destroyed[4:] == [99], "the second one is refused"


def _refuse() -> int:
    raise PatchError("no events")


def test_without_events_or_the_hook_library_nothing_is_timed(
    events: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses() -> int:
        raise PatchError("no events")

    monkeypatch.setattr(cuda, "event", refuses)
    timed = Timed()
    timed.recorded(4, GRID, "k", {})
    assert not timed.plain(4, GRID, 0) and not events
    monkeypatch.undo()
    monkeypatch.setattr(cuda, "event", lambda: 1)
    monkeypatch.setattr(cuda, "context_number", lambda: 1)
    monkeypatch.setattr(cuda, "capturing", lambda _: False)
    monkeypatch.setattr(cuda, "time_next", lambda *_: False)
    timed = Timed()
    timed.recorded(4, GRID, "k", {})
    assert not timed.plain(4, GRID, 0)
