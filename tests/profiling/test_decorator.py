"""``ikp.profile`` as a decorator."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ikp
from ikp.errors import UsageError
from tests.host import Host, work

torch = pytest.importorskip("torch")


def test_a_decorated_function_is_recorded_each_time_it_is_called(host: Host) -> None:
    recorder = ikp.profile()

    @recorder
    def step(records: int, *, label: str = "k", prof: ikp.profile) -> int:
        """Do a step."""
        host.run(prof.buffer(label), work(records))
        return records + 1

    assert (step.__name__, step.__doc__) == ("step", "Do a step.")
    assert "step" in step.__qualname__
    assert list(inspect.signature(step).parameters) == ["records", "label", "prof"]
    call: Any = step
    assert call(3) == 4
    assert [(each.label, each.attempted) for each in recorder.trace.launches] == [("k", 4)]
    assert call(5, label="l") == 6
    assert [(each.label, each.attempted) for each in recorder.trace.launches] == [("l", 6)]


def test_a_decorated_function_need_not_want_the_session(host: Host) -> None:
    recorder = ikp.profile()

    @recorder
    def step(value: int) -> int:
        host.run(recorder.buffer("k"), work())
        return value

    assert step(7) == 7
    assert len(recorder.trace.launches) == 1


def test_a_call_inside_a_call_belongs_to_the_outer_ones_session(host: Host) -> None:
    recorder = ikp.profile()

    @recorder
    def again(times: int, *, prof: ikp.profile) -> None:
        host.run(prof.buffer(f"{times} to go"), work(times))
        if times > 1:
            again(times - 1)  # type: ignore[call-arg]
            assert len(recorder.trace.launches) == 3, "and the session goes on"

    again(3)  # type: ignore[call-arg]
    labels = [launch.label for launch in recorder.trace.launches]
    assert labels == ["3 to go", "2 to go", "1 to go"]


def test_calls_in_several_threads_have_a_session_each(host: Host) -> None:
    recorder = ikp.profile()
    threads = 4
    together = threading.Barrier(threads)

    @recorder
    def step(name: str, *, prof: ikp.profile) -> ikp.profile:
        together.wait()
        host.run(prof.buffer(name), work())
        host.run(recorder.buffer(f"{name} too"), work())
        together.wait()
        return prof

    names = [f"thread {number}" for number in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        sessions = list(pool.map(step, names))
    assert [[each.label for each in prof.trace.launches] for prof in sessions] == [
        [name, f"{name} too"] for name in names
    ]


def test_without_brackets_the_error_says_so() -> None:
    with pytest.raises(UsageError, match=r"needs brackets: @ikp.profile\('x.pftrace'\)"):

        @ikp.profile  # type: ignore[arg-type]
        def step() -> None: ...


def test_functions_whose_body_runs_later_are_refused() -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    for function in (coroutine, generator):
        with pytest.raises(UsageError, match=f"{function.__name__} is a coroutine or a generator"):
            ikp.profile()(function)
