"""Which launches are timed, without a device; tests/backends/driver has the driver's part."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ikp.backends._pairs import LEAST, error, middle
from ikp.backends.timed import ASKED, FURTHER, MOST, QUIET, Timed
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


def test_no_kept_launch_is_timed_once_a_launch_overlaps(events: list[tuple[int, int]]) -> None:
    """The rule: events keep launches apart, and a trace shows these as they are without."""
    timed = Timed()
    timed.recorded(4, GRID, "k", {})
    timed.overlap()
    assert not timed.recorded(4, GRID, "k", {}) and not timed.plain(4, GRID, 0)
    assert len(events) == 1
    timed.repeats(4, GRID, Repeated(), 44)  # type: ignore[arg-type]
    assert all(timed.plain(4, GRID, 0, further=True) for _ in range(QUIET))
    assert not timed.recorded(4, GRID, "k", {}) and len(events) == 1
    assert all(timed.plain(4, GRID, 0, further=True) for _ in range(QUIET))
    assert timed.further(4, 44, GRID, (256, 1, 1), 0, take) is None
    assert timed.plain(4, GRID, 0, further=True) and len(events) == 2, "no launch is kept any more"
    assert timed.further(4, 44, GRID, (256, 1, 1), 0, take) is not None and len(events) == 3


def test_it_is_not_waited_for_ever_for_launches_to_keep(events: list[tuple[int, int]]) -> None:
    timed = Timed()
    timed.overlap()
    asked = 0
    for _ in range(9999):
        timed.recorded(4, GRID, "k", {})
        asked += timed.plain(4, GRID, 0, further=True)
    assert 0 < asked < 5000 and not events


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


@pytest.mark.parametrize("number", [4, 6, 8, 16, 36])
@pytest.mark.parametrize("spread", ["normal", "exponential", "two heaps"])
def test_the_stated_error_holds_in_95_of_100(number: int, spread: str) -> None:
    """The rule: the middle of a few differences is within its error of what many would say."""
    random, shape = np.random.default_rng(7), (1000, number)
    drawn, true = {
        "normal": (random.standard_normal(shape), 0.0),
        "exponential": (random.standard_exponential(shape), 0.839),
        "two heaps": (random.standard_normal(shape) / 4 + 4 * random.integers(0, 2, shape), 2.0),
    }[spread]
    held = [abs(middle(each) - true) <= error(each) for each in drawn.tolist()]
    few = number < 6 and spread != "normal"
    assert sum(held) / len(held) >= (0.85 if few else 0.94)


def test_the_middle_of_a_few_times_spreads_less_than_their_median() -> None:
    drawn = np.random.default_rng(7).standard_normal((1000, 16)).tolist()
    assert np.std([middle(each) for each in drawn]) < 0.9 * np.std(np.median(drawn, axis=1))
    assert middle([1.0, 1.1, 1.2, 1.1, 90.0]) < 1.2, "a launch that is far off moves it little"


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


class Repeated:
    """A recorded launch that further ones repeat."""

    def __init__(self) -> None:
        self.repeat, self.taken = self, 0

    def is_usable(self) -> bool:
        return True

    def unread(self) -> object:
        self.taken += 1
        return object()

    def words(self, memory: object) -> tuple[int, ...]:
        return 1, 2


def take(make: Callable[[], object], stream: int) -> object:
    return make()


@pytest.mark.parametrize(("spread", "number"), [(0.1, 8), (12.0, FURTHER)])
def test_further_launches_have_records_until_the_difference_is_well_known(
    events: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, spread: float, number: int
) -> None:
    """The rule: short or unsteady kernels are timed more often, none of them without end."""
    took: dict[int, float] = {}
    monkeypatch.setattr(cuda, "elapsed_us", lambda first, _: took.get(first))
    random, timed, facts, known = np.random.default_rng(3), Timed(), dict[str, str](), Repeated()

    def us(recorded: bool) -> float:
        return float(100 + 10 * recorded + spread * random.standard_normal())

    for each in range(13):
        chosen = each in IN_TURN
        timed.recorded(4, GRID, "k", facts) if chosen else timed.plain(4, GRID, 0)
        took.setdefault(events[-1][0], us(chosen))
    timed.repeats(4, GRID, known, 44, (256, 1, 1))  # type: ignore[arg-type]
    made = ""
    for turn in range(2 * ASKED):
        with_records = timed.further(4, 44, GRID, (256, 1, 1), 0, take) is not None
        goes_on = with_records or timed.plain(4, GRID, 0, further=True)
        took.setdefault(events[-1][0], us(with_records))
        made += ".R"[turn.bit_count() % 2 if goes_on or with_records else 0]
        assert with_records == (made[-1] == "R")
        if not goes_on:
            break
    assert number <= len(made) <= number + 1 and known.taken == 1
    timed.report()
    said = json.loads(facts["timed k"])
    assert said["in_turn"] and said["launches"][0] >= number // 2
    assert said["recorded_us"] - said["plain_us"] == pytest.approx(10, abs=said["error_us"])


def test_a_launch_that_has_failed_or_is_another_has_no_records(
    events: list[tuple[int, int]],
) -> None:
    timed = Timed()
    for each in range(13):
        chosen = each in IN_TURN
        timed.recorded(4, GRID, "k", {}) if chosen else timed.plain(4, GRID, 0)
    timed.repeats(4, GRID, Repeated(), 44)  # type: ignore[arg-type]
    timed.plain(4, GRID, 0, further=True)
    assert timed.further(4, 45, GRID, (256, 1, 1), 0, take) is None, (
        "the handle is another function's"
    )
    assert timed.further(4, 44, GRID, (256, 1, 1), 9, take) is None, "a graph captures it"
    assert timed.further(4, 44, GRID, (256, 1, 1), 0, take) is not None
    timed.keep_plain("k")
    assert timed.further(4, 44, GRID, (256, 1, 1), 0, take) is None


def test_memory_that_a_kernel_may_write_to_yet_is_not_freed(
    events: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule: at the report, further launches may run yet."""
    pinned: list[object] = []
    monkeypatch.setattr("ikp.backends.timed._pinned", pinned)
    for happened in (True, False):
        monkeypatch.setattr(cuda, "elapsed_us", lambda *_: 7.0)
        timed = Timed()
        timed.recorded(4, GRID, "k", {})
        timed.repeats(4, GRID, Repeated(), 44)  # type: ignore[arg-type]
        timed.plain(4, GRID, 0, further=True)
        assert timed.further(4, 44, GRID, (256, 1, 1), 0, take) is not None
        if not happened:
            monkeypatch.setattr(cuda, "elapsed_us", lambda *_: None)
        timed.report()
        assert len(pinned) == (not happened)


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
