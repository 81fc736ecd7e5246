"""Sessions of several threads and tasks: each records what is its own, and all of it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

import ikp
from ikp.errors import IkpWarning
from ikp.session.arena import SegmentKind, Shelf
from ikp.session.current import current
from ikp.session.device import HOST
from ikp.session.service import Here
from ikp.session.storage import HostStorage
from tests.host import Host, work

pytest.importorskip("torch")

pytestmark = pytest.mark.any_pins


@pytest.fixture
def hasty() -> Iterator[None]:
    """Have threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(count: int, body: Callable[[int], Any]) -> list[Any]:
    """Return what ``body`` returned in each of so many threads that begin together."""
    together = threading.Barrier(count)

    def run(number: int) -> Any:
        together.wait()
        return body(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def in_a_thread(body: Callable[[], Any]) -> Any:
    (found,) = in_threads(1, lambda _: body())
    return found


@pytest.mark.usefixtures("hasty")
def test_threads_that_take_buffers_of_one_session_at_once_get_each_its_own(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, each, size = 8, 20, 16 << 10
    monkeypatch.setattr("ikp.session.arena.CHUNK_BYTES", 4 * size)  # as of 16 MiB by default
    with ikp.profile(buffer_size=size) as prof:

        def launch(number: int) -> None:
            for step in range(each):
                host.run(prof.buffer(f"{number}.{step}"), work(step + 1))

        in_threads(threads, launch)
    found = {launch.label: launch.attempted for launch in prof.trace.launches}
    assert found == {f"{n}.{s}": s + 2 for n in range(threads) for s in range(each)}


def test_no_thread_takes_the_chunk_that_another_has_just_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(HostStorage):
        def zeroed(self, nbytes: int) -> Any:
            time.sleep(1e-3)  # on a GPU, zeroing is waited for: others run meanwhile
            return super().zeroed(nbytes)

    monkeypatch.setattr("ikp.session.arena.CHUNK_BYTES", 2000)  # room for one
    shelf, threads, each = Shelf(Here(Slow()), HOST), 8, 20
    ready = shelf.ready(SegmentKind(2000, None))
    taken = in_threads(threads, lambda _: [shelf.take(ready) for _ in range(each)])
    starts = sorted(piece.data_ptr() for pieces in taken for piece in pieces)
    assert min(after - before for before, after in pairwise(starts)) >= 2000


def test_each_thread_has_the_session_that_it_opened(host: Host) -> None:
    together = threading.Barrier(2)

    def body(number: int) -> bool:
        with ikp.profile() as prof:
            together.wait()
            host.run(current().buffer(str(number)), work())  # type: ignore[union-attr]
            together.wait()
        return [launch.label for launch in prof.trace.launches] == [str(number)]

    assert in_threads(2, body) == [True, True]
    assert current() is None


def test_a_thread_without_a_session_has_the_main_threads(host: Host) -> None:
    with ikp.profile() as outer, ikp.profile() as inner:
        assert in_a_thread(current) is inner
        assert outer is not inner
    assert in_a_thread(current) is None


def test_nobody_sees_the_session_of_another_thread(host: Host) -> None:
    with ThreadPoolExecutor(1) as pool:
        prof = pool.submit(lambda: ikp.profile().start()).result()
        assert pool.submit(current).result() is prof
        assert current() is None
        assert in_a_thread(current) is None
        pool.submit(prof.stop).result()


def test_a_task_has_its_own_session_or_that_of_the_task_that_made_it(host: Host) -> None:
    seen: dict[str, Any] = {}

    async def recorded(name: str, opened: asyncio.Event, done: asyncio.Event) -> None:
        with ikp.profile() as prof:
            opened.set()
            await done.wait()
            seen[name] = current() is prof
            child = asyncio.create_task(asyncio.to_thread(current))
            seen[f"{name}'s child"] = await child is prof

    async def main() -> None:
        events = [asyncio.Event() for _ in range(3)]
        done = events[2]
        tasks = [asyncio.create_task(recorded(str(i), events[i], done)) for i in range(2)]
        await asyncio.gather(*(event.wait() for event in events[:2]))
        seen["neither"] = current() is None
        loop = asyncio.get_running_loop()
        with pytest.warns(IkpWarning, match=r"several open.*runs unrecorded.*prof=prof"):
            seen["a pool's thread"] = await loop.run_in_executor(None, current) is None
        done.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert len(seen) == 6
    assert all(seen.values()), seen


def test_a_started_session_is_that_of_all_who_have_none(host: Host) -> None:
    import contextvars

    prof = ikp.profile()
    contextvars.Context().run(prof.start)  # as a notebook's cell that runs in a task of its own
    assert current() is prof
    assert in_a_thread(current) is prof
    with ikp.profile() as inner:
        assert current() is inner
    prof.stop()
    assert current() is None


def test_a_context_that_outlives_a_session_does_not_come_back_to_it(host: Host) -> None:
    import contextvars

    prof = ikp.profile()
    with prof:
        kept = contextvars.copy_context()
        assert kept.run(current) is prof
    assert kept.run(current) is None

    def opened_elsewhere() -> bool:
        with prof:
            return kept.run(current) is None

    assert in_a_thread(opened_elsewhere)
