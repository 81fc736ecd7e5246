"""What is done beside a launch: in a thread of its own, ahead where that can be."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import ikp
from ikp.core import abi
from ikp.core.segment import WORDS_AT, SegmentRows, Selection
from ikp.errors import BufferError, PatchError
from ikp.session import arena, harvest, recorded_segments, service
from ikp.session.arena import SegmentKind, Shelf
from ikp.session.device import Device
from ikp.session.handed import is_made_ahead
from ikp.session.service import DeviceService, Here, Worker
from ikp.session.storage import DriverStorage, HostStorage
from ikp.signals import deferred
from tests.core.decoding.checks import assert_holds
from tests.host import Host, work
from tests.session.test_harvest import SIZE, held, launch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.any_pins


CPU = Device("cpu")


class Reused(HostStorage):
    """The host's memory, as a GPU's is treated; it knows which thread uses it."""

    reuses = True

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.made = self.cleared = 0
        self.limit = 1 << 40

    def zeroed(self, nbytes: int) -> Any:
        self.threads.add(threading.get_ident())
        if self.made + nbytes > self.limit:
            raise PatchError("the CUDA driver could not allocate.")
        self.made += nbytes
        return super().zeroed(nbytes)

    def clear(self, data: Any, parts: Iterable[SegmentRows]) -> None:
        parts = list(parts)
        self.threads.add(threading.get_ident())
        self.cleared += sum(part.nbytes for part in parts)
        super().clear(data, parts)

    def read(self, data: Any, part: SegmentRows) -> Any:
        self.threads.add(threading.get_ident())
        return super().read(data, part)

    def write(self, data: Any, at: int, words: Any) -> None:
        self.threads.add(threading.get_ident())
        super().write(data, at, words)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Reused:
    made = Reused()
    monkeypatch.setattr(service, "storage_of", lambda *_: made)
    return made


@pytest.fixture
def beside(storage: Reused) -> Iterator[DeviceService]:
    made = DeviceService("cuda:7")
    yield made
    made.stop()


def until(condition: Any) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < 30
        time.sleep(0.001)


def test_jobs_run_elsewhere_in_their_order_and_raise_where_they_were_asked(
    beside: DeviceService,
) -> None:
    order: list[int] = []
    beside.post(lambda: order.append(1))
    assert beside.call(threading.get_ident) != threading.get_ident()
    assert order == [1]

    def fail() -> None:
        raise BufferError("no memory")

    with pytest.raises(BufferError, match="no memory"):
        beside.call(fail)
    assert beside.call(lambda: 7) == 7


def test_a_job_that_waits_keeps_no_other_from_running(beside: DeviceService) -> None:
    come, asked = threading.Event(), []

    def waits() -> float | None:
        asked.append(time.monotonic())
        return None if come.is_set() else 0.001

    beside.post(waits)
    until(lambda: len(asked) > 3)
    for number in range(200):
        assert beside.call(lambda number=number: number) == number
    come.set()
    until(lambda: beside.call(lambda: len(asked)) == (time.sleep(0.02) or len(asked)))


def test_a_thread_that_has_ended_runs_no_job_and_keeps_no_caller_waiting(
    beside: DeviceService,
) -> None:
    """Jobs that wait to be called again hold events, which must not outlive their GPU's memory."""
    asked: list[int] = []
    holds = Reused()
    gone = weakref.ref(holds)

    def waits(_: Any, asked: list[int] = asked) -> float:
        asked.append(1)
        return 0.001

    beside.post(partial(waits, holds))
    del holds
    until(lambda: asked)
    beside.end("it is over")
    assert gone() is None
    for _ in range(2):
        with pytest.raises(PatchError, match="it is over"):
            beside.call(lambda: asked.append(2))
        beside.post(lambda: asked.append(2))
    assert 2 not in asked
    beside.end("again")


@pytest.mark.parametrize("again", [None, 0.001])
def test_a_thread_that_waits_holds_no_job_that_is_over(
    beside: DeviceService, again: float | None
) -> None:
    """The latest one of a session holds all its memory."""
    holds = Reused()
    gone, results = weakref.ref(holds), [again]

    def step(_: Any) -> float | None:
        return results.pop() if results else None

    beside.post(partial(step, holds))
    del holds
    until(lambda: not results and gone() is None)


def test_a_job_that_fails_leaves_the_others(
    beside: DeviceService, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    beside.post(fail)
    assert beside.call(lambda: 7) == 7
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_device_that_can_not_be_used_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no such device")

    made = list[DeviceService]()
    monkeypatch.setattr(service, "storage_of", fail)
    monkeypatch.setattr(DeviceService, "stop", lambda self: (made.append(self), Worker.stop(self)))
    with pytest.raises(RuntimeError, match="no such device"):
        DeviceService("cuda:9")
    until(lambda: not made[0].alive)


def test_a_program_that_looks_for_threads_finds_its_own(storage: Reused) -> None:
    """As test suites do that ask whether a test has left any."""
    before = threading.enumerate()
    beside = Worker()
    with deferred():
        assert beside.call(threading.get_ident) != threading.get_ident()
        assert beside.call(lambda: beside.call(lambda: 5)) == 5
    assert threading.enumerate() == before and beside.alive
    beside.end("the test is over")
    assert not beside.alive


def test_a_later_thread_is_not_taken_for_one_that_has_ended() -> None:
    """The system gives out the numbers of threads again: a job would run in any such thread."""
    beside, said = Worker(), list[tuple[int, str]]()
    number = beside.call(threading.get_ident)
    beside.end("it is over")

    def call() -> None:
        try:
            beside.call(lambda: None)
        except PatchError as error:
            said.append((threading.get_ident(), str(error)))
        else:
            said.append((threading.get_ident(), "it ran"))

    for _ in range(200):
        later = threading.Thread(target=call)
        later.start()
        later.join()
        if said[-1][0] == number:
            break
    assert {text for _, text in said} == {"it is over"}


def test_segments_lie_ready_and_are_zero(beside: DeviceService, storage: Reused) -> None:
    shelf = Shelf(beside, CPU)
    ready = shelf.ready(SegmentKind(1 << 16, None))
    pieces = [shelf.take(ready)]
    for count in range(1, 40):
        until(lambda: ready.pieces)
        pieces.append(shelf.take(ready))
        assert len({piece.data_ptr() for piece in pieces}) == count + 1
    assert not any(piece.any() for piece in pieces)
    assert threading.get_ident() not in storage.threads, "no launch allocates or zeroes"


def test_where_none_is_ready_more_are_made_ahead(beside: DeviceService) -> None:
    shelf = Shelf(beside, CPU)
    ready = shelf.ready(SegmentKind(1 << 16, None))
    ahead = []
    for _ in range(4):
        shelf.take(ready)
        until(lambda: not ready.filling)
        ahead.append(len(ready.pieces))
        ready.pieces.clear()
    assert ahead == [2, 4, 8, 16]


def test_what_lies_ready_has_a_limit_and_goes_where_memory_is_short(
    beside: DeviceService, storage: Reused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "READY_BYTES", 3 << 16)
    monkeypatch.setattr(arena, "CHUNK_BYTES", 1 << 16)
    shelf = Shelf(beside, CPU)
    ready, other = (shelf.ready(SegmentKind(1 << each, None)) for each in (16, 22))
    for _ in range(4):
        shelf.take(ready)
        until(lambda: not ready.filling)
    assert len(ready.pieces) <= 3
    made: list[Any] = []
    storage.limit = storage.made
    real = storage.zeroed

    def zeroed(nbytes: int) -> Any:
        if not ready.pieces:
            storage.limit = 1 << 40
            made.append(nbytes)
        return real(nbytes)

    monkeypatch.setattr(storage, "zeroed", zeroed)
    assert shelf.take(other).numel() == 1 << 22
    assert made[0] >= 1 << 22
    until(lambda: not other.filling)


def test_more_is_kept_of_what_was_used_than_is_made_ahead(
    beside: DeviceService, storage: Reused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "READY_BYTES", 2 << 16)
    monkeypatch.setattr(arena, "KEPT_BYTES", 7 << 16)
    shelf = Shelf(beside, CPU)
    ready = shelf.ready(SegmentKind(1 << 16, None))
    pieces = [shelf.take(ready) for _ in range(10)]
    until(lambda: not ready.filling)
    assert len(ready.pieces) <= 2
    for piece in pieces:
        beside.call(lambda piece=piece: shelf.give_back(ready.kind, piece))
    assert len(ready.pieces) == 7


def test_what_was_used_makes_room_for_launches_of_another_kind(
    beside: DeviceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "KEPT_BYTES", 4 << 16)
    shelf = Shelf(beside, CPU)
    shelf.keep(8 << 16)
    ready, other = (shelf.ready(SegmentKind(each << 16, None)) for each in (1, 2))
    for count in (4, 8):
        ready.pieces.clear()
        for _ in range(10):
            beside.call(lambda: shelf.give_back(ready.kind, shelf._carved(ready, 1)[0]))
        assert len(ready.pieces) == 8
        while len(ready.pieces) > count:
            ready.pieces.pop()
        shelf.take(other)
        until(lambda: not other.filling)
        assert len(ready.pieces) == (4 if count == 4 else 0)
        other.pieces.clear()


def test_what_is_made_at_once_is_what_one_after_the_other_would_be(
    beside: DeviceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "WINDOW", window := 1 << 16)
    monkeypatch.setattr(arena, "CHUNK_BYTES", chunk := 5 << 15)
    for nbytes in (1 << 10, 3 << 10, (3 << 10) + abi.ALIGNMENT, 1 << 15):
        memory, made = arena.Arena(beside.storage, CPU), list[Any]()
        while len(made) < 3 * chunk // nbytes:
            some = memory.take_some(nbytes, 40)
            assert 1 <= len(some) <= 40
            made += some
        begins = sorted(each.data_ptr() for each in made)
        assert all(b - a >= nbytes for a, b in itertools.pairwise(begins)), "none overlap"
        assert not any(at % abi.ALIGNMENT for at in begins)
        assert all(at // window == (at + nbytes - 1) // window for at in begins)
        assert not any(each.any() or len(each) != nbytes for each in made)


def test_only_what_programs_hold_has_a_tensor_for_them_made_in_the_service(
    beside: DeviceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, make = [], arena.made_ahead

    def made_ahead(piece: Any) -> Any:
        threads.append(threading.get_ident())
        return make(piece)

    monkeypatch.setattr(arena, "made_ahead", made_ahead)
    shelf = Shelf(beside, CPU)
    ready = shelf.ready(SegmentKind(1 << 12, None))

    def taken(handed: bool) -> bool:
        until(lambda: not ready.filling)
        return is_made_ahead(shelf.take(ready, handed=handed))

    assert not any(taken(False) for _ in range(40)) and not threads
    assert all(taken(True) for _ in range(300))
    assert set(threads) == {beside.call(threading.get_ident)}
    until(lambda: not ready.filling)
    threads.clear()
    made = [shelf.take(ready, handed=True) for _ in range(20)]
    assert not threads, "they are made ahead of launches"
    for piece in made:
        del piece.ikp_handed
        beside.call(lambda piece=piece: shelf.give_back(ready.kind, piece))
    assert all(map(is_made_ahead, ready.pieces)), "those that were used, too"
    shelf.take_some(ready, 4)
    until(lambda: not ready.filling)
    assert not any(is_made_ahead(shelf._carved(ready, 1)[0]) for _ in range(4))
    assert taken(True)


def test_a_choice_of_warps_is_written_ahead_too(beside: DeviceService, storage: Reused) -> None:
    shelf, chosen = Shelf(beside, CPU), Selection(5, 1, 2, 3)
    for _ in range(5):
        piece = shelf.take(shelf.ready(SegmentKind(1 << 12, chosen)))
        words = piece[WORDS_AT : WORDS_AT + 16].numpy().view("<u4")
        assert words.tolist() == chosen.words().tolist()
        piece[WORDS_AT : WORDS_AT + 16] = 0
        assert not piece.any()
    assert threading.get_ident() not in storage.threads


@pytest.fixture
def gpu(host: Host, storage: Reused, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceService]:
    """Let the host's memory be a GPU's: used by a thread of its own, again and again."""
    made = DeviceService("cpu")
    monkeypatch.setattr(recorded_segments, "service_of", lambda _: made)
    monkeypatch.setattr(harvest, "BEGIN_BYTES", 16 * SIZE)
    monkeypatch.setattr(arena, "CHUNK_BYTES", 8 * SIZE)
    yield made
    made.stop()


@pytest.mark.filterwarnings("ignore:nothing was recorded")
@pytest.mark.parametrize("options", [{}, {"warps": [0]}])
def test_a_session_uses_memory_again_and_zeroes_what_was_written_alone(
    host: Host, gpu: DeviceService, storage: Reused, options: dict[str, Any]
) -> None:
    truths = []
    with ikp.profile() as prof:
        for i in range(300):
            buffer = prof.buffer(f"launch {i}", size=SIZE, **options)
            words = buffer.data[WORDS_AT : WORDS_AT + 16].clone()
            buffer.data[WORDS_AT : WORDS_AT + 16] = 0
            assert not buffer.data.any(), "an earlier launch's records"
            assert words.any() == bool(options)
            buffer.data.data_ptr()
            if not options:
                truths.append(host.run(buffer, work(1 + i % 7)))
            else:
                buffer.data[WORDS_AT : WORDS_AT + 16] = words
            del buffer
            if i % 8 == 7:
                until(lambda: not prof._recording._places[CPU].harvest._group)
        assert len(held(prof)) < 60
        read = [each for each in prof._recording._taken if each.lifted is not None]
        assert len(read) > 240
        kept = sum(each.lifted.nbytes for each in read)
        assert prof.held == SIZE * len(held(prof)) + harvest.DECODED * kept
    if truths:
        assert_holds(prof.trace, *truths)
    assert storage.made < 120 * SIZE
    assert storage.cleared < 300 * SIZE / 4 or options
    assert threading.get_ident() not in storage.threads


def test_a_reset_empties_buffers_that_are_held(host: Host, gpu: DeviceService) -> None:
    with ikp.profile() as prof:
        mine = prof.buffer("mine", size=SIZE)
        mine.data.data_ptr()
        host.run(mine, work(3))
        prof.reset()
        assert not mine.data.any()
        truth = host.run(mine, work(4))
        truths = [launch(host, prof) for _ in range(40)]
    assert_holds(prof.trace, truth, *truths)


def test_another_thread_may_read_while_one_launches(host: Host, gpu: DeviceService) -> None:
    stop, seen = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            seen.append([each.kept for each in prof.trace.launches])

    with ikp.profile() as prof:
        first = launch(host, prof, records=2)
        thread = threading.Thread(target=look)
        thread.start()
        truths = [launch(host, prof, records=2) for _ in range(120)]
        stop.set()
        thread.join()
    assert_holds(prof.trace, first, *truths)
    assert seen and all(max(kept) <= 3 for kept in seen)


def test_a_header_that_is_half_written_is_read_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ikp.profile() as prof:
        written = prof.buffer("k", size=SIZE)
        truth = host.run(written, work(3))
        magic = written.data[:4].clone()
        written.data[:4] = 0
        monkeypatch.setattr(time, "sleep", lambda _: written.data[:4].copy_(magic))
        assert_holds(prof.trace, truth)


class Counted:
    """A pool whose memory is the host's."""

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.waited = 0

    def allocate(self, nbytes: int) -> int:
        made = np.zeros(nbytes, np.uint8)
        self.memory[made.ctypes.data] = made
        return int(made.ctypes.data)

    def free(self, address: int) -> None:
        del self.memory[address]

    def clear(self, *_: Any) -> None:
        pass

    def wait(self) -> None:
        self.waited += 1


def test_the_drivers_memory_is_freed_by_its_own_thread_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool: Any = Counted()
    woken: list[int] = []
    storage = DriverStorage(pool, Device("cuda", 7), lambda: woken.append(1))
    made: list[Any] = []

    def as_tensor(data: Any, device: str) -> object:
        assert device == "cuda:7"
        described = data.__cuda_array_interface__
        assert described["shape"] == (16,) and described["typestr"] == "|u1"
        assert described["data"] == (next(iter(pool.memory)) + 8, False)
        made.append(data)
        return object()

    monkeypatch.setattr(torch, "as_tensor", as_tensor)
    data = storage.zeroed(64)[8:24]
    assert data.tensor() is data.tensor(), "made once"
    assert pool.waited == 1
    tensor, handed = made[0], [made.pop()]
    del data, tensor
    gc.collect()
    assert not woken, "a tensor keeps the memory"
    handed.clear()
    assert woken and pool.memory, "whoever lets it go may be capturing a graph"
    storage.sweep()
    assert not pool.memory and pool.waited == 2


def test_a_child_frees_nothing_of_its_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    pool: Any = Counted()
    storage = DriverStorage(pool, Device("cuda", 7), lambda: None)
    data = storage.zeroed(64)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    del data
    gc.collect()
    storage.sweep()
    assert pool.memory


def test_the_hosts_jobs_run_here() -> None:
    here, asked = Here(HostStorage()), []

    def job() -> float | None:
        asked.append(1)
        return {1: 0.0, 2: 1.0}.get(len(asked))

    here.post(job)
    assert len(asked) == 2
    here.look()
    here.look()
    assert len(asked) == 3
    assert here.call(threading.get_ident) == threading.get_ident()


def test_the_threads_of_all_devices_can_be_ended(
    beside: DeviceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "services", lambda: [("cuda:7", beside), (CPU, Here(Reused()))])
    service.end_services("the program has ended.")
    assert not beside.alive
    with pytest.raises(PatchError, match="the program has ended"):
        beside.call(int)


def test_who_asks_for_it_hears_of_each_reading(
    host: Host, gpu: DeviceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What torch has made for a reading is destroyed before what was registered before that."""
    heard: list[int] = []
    monkeypatch.setattr(harvest, "after_reading", [lambda: heard.append(threading.get_ident())])
    with ikp.profile() as prof:
        for i in range(60):
            launch(host, prof, f"launch {i}")
        until(lambda: any(each.lifted is not None for each in prof._recording._taken))
        until(lambda: heard)
    assert {*heard} == {gpu.call(threading.get_ident)}


def test_a_thread_begins_while_its_caller_holds_what_the_programs_imports_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held, late = threading.RLock(), list[str]()

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if held.acquire(timeout=0.2):
                held.release()
            else:
                late.append(name)

    monkeypatch.delitem(sys.modules, "ikp.session.own_objects", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with held:
        worker = Worker()
        assert worker.call(lambda: 5) == 5
    worker.end("over")
    assert not late
