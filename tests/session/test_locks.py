"""What threads of a session share changes under its lock alone: a lock that is left out is found.

No threads are needed for most of it: an attribute, or a container, says who changes it without.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import ikp
from ikp.errors import IkpError
from ikp.session import harvest, memory, recorded_segments, recorder
from ikp.session.harvest import Harvest
from ikp.session.recorded_segments import DevicePlace
from ikp.session.recorder import Recording
from ikp.session.service import Each, Here
from ikp.session.storage import HostStorage
from tests.host import Host, work

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.any_pins

SIZE = 64 << 10


class Changes:
    """The changes of what an object's lock is for, with and without that."""

    def __init__(self) -> None:
        self.without, self.by = set[str](), set[str]()

    def note(self, lock: Any, what: str) -> None:
        (self.by if lock.locked() else self.without).add(what)


def watched(kind: type, changes: Changes, shared: tuple[str, ...]) -> dict[str, Any]:
    """Return members of a class: its attributes say when they change, once it is made."""

    def set_one(self: Any, name: str, value: object) -> None:
        if name in shared and name in vars(self):
            changes.note(self._lock, f"{kind.__name__}.{name}")
        if name in shared and type(value) in _CONTAINERS:
            value = _CONTAINERS[type(value)](value)
            value.note = lambda: changes.note(self._lock, f"{kind.__name__}.{name} holds")
        object.__setattr__(self, name, value)

    return {"__setattr__": set_one}


class Listed(list[Any]):
    note: Callable[[], None]

    def append(self, value: object) -> None:
        self.note()
        super().append(value)


class Queued(deque[Any]):
    note: Callable[[], None]

    def append(self, value: object) -> None:
        self.note()
        super().append(value)

    def popleft(self) -> Any:
        self.note()
        return super().popleft()

    def extendleft(self, values: Any) -> None:
        self.note()
        super().extendleft(values)


class Keyed(dict[Any, Any]):
    note: Callable[[], None]

    def __setitem__(self, key: object, value: object) -> None:
        self.note()
        super().__setitem__(key, value)


_CONTAINERS: dict[type, type] = {list: Listed, deque: Queued, dict: Keyed}
OF_HARVEST = ("_waiting", "_unread", "_kept", "_made", "_attempted", "crowded", "_group", "_paused")
OF_HARVEST += ("sizes", "_roomy", "_watched", "_short")
OF_RECORDING = ("_taken", "_places", "_logs")
OF_ITS_LOCK = ((Recording, "_found"), (Recording, "_keep"), (DevicePlace, "step"))


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    """The changes of sessions' state, in which memory is short soon."""
    made = Changes()
    for kind, shared in ((Harvest, OF_HARVEST), (Recording, OF_RECORDING)):
        for name, each in watched(kind, made, shared).items():
            monkeypatch.setattr(kind, name, each, raising=False)
    monkeypatch.setattr(harvest, "BEGIN_BYTES", 4 * SIZE)
    monkeypatch.setitem(memory.DEFAULT_BYTES, "timeline", SIZE)
    return made


@contextmanager
def locked_calls(
    recording: Recording, changes: Changes, *places: tuple[Any, str]
) -> Iterator[None]:
    """Within the context, some functions note whether a recording's lock is held."""
    monkeypatch = pytest.MonkeyPatch()
    for kind, name in places:
        plain = getattr(kind, name)

        def noting(self: Any, *args: Any, _plain: Any = plain, _name: str = name) -> Any:
            changes.note(recording._lock, f"{_name}()")
            return _plain(self, *args)

        monkeypatch.setattr(kind, name, noting)
    try:
        yield
    finally:
        monkeypatch.undo()


def launch(host: Host, prof: ikp.profile, records: int) -> None:
    """Record a launch whose buffer nobody holds then."""
    buffer = prof.buffer("k", grid=(2,), num_warps=1)
    buffer.data.data_ptr()
    host.run(buffer, work(records))


def test_a_session_changes_what_threads_share_under_its_locks(
    host: Host, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ikp.profile() as prof:
        recording: Any = prof._recording
        with locked_calls(recording, changes, *OF_ITS_LOCK):
            for number in range(24):
                launch(host, prof, 3 + number)
            prof.discard(prof.buffer("k", size=SIZE))
            recording.empty()
            kept = prof.buffer("k", size=SIZE)
            kept.data.data_ptr()
            host.run(kept, work(1))
            monkeypatch.setattr(harvest.Harvest, "_lift", _fails)
            (place,) = recording._places.values()
            place.harvest._begin(None, 0, short=True, settled=False)
            launch(host, prof, 1)
            place.harvest._begin(Broken(), 0, short=True, settled=False)
            monkeypatch.setattr(recorder, "ReplayLog", lambda *_: SimpleNamespace(keep=_keeps))
            recording.wishes.replays = 1
            recording._keep_replays(SimpleNamespace(device=kept.data.device, segments=[]), new=True)
            recording._logs.clear()
            with locked_calls(recording, changes, (recorded_segments, "is_here")):
                recording.snapshot({})
    del kept
    assert changes.without == set()
    expected = {f"Harvest.{each}" for each in ("_unread", "_kept", "crowded", "_paused", "sizes")}
    expected |= {"Harvest._waiting holds", "Harvest._attempted holds", "Recording._taken holds"}
    expected |= {"Harvest._waiting holds", "Recording._logs holds", "is_here()"}
    expected |= {"Harvest._group holds", "Recording._places holds", "_found()", "_keep()", "step()"}
    assert changes.by >= expected, "each of it was seen"


class Broken:
    """A stream of a device on which a kernel has failed."""

    def record_event(self) -> None:
        raise RuntimeError


def _keeps(*_: object, new: bool) -> None:
    assert new


def _fails(*_: object) -> None:
    raise IkpError("no memory")


def test_settled_launches_are_looked_for_under_the_lock(host: Host, changes: Changes) -> None:
    with ikp.profile() as prof:
        recording: Any = prof._recording
        host.run(prof.buffer("k", size=SIZE), work(1))
        (place,) = recording._places.values()
        place.harvest.keep(lambda _: False)
        assert place.harvest._watch() is None
        prof.reset()
    assert "Harvest._watched" in changes.by and not changes.without


HELD_S = 0.2
"""So long another thread is waited for, which is not to come."""


def comes_between(meanwhile: Callable[[], object]) -> bool:
    """Return whether another thread gets through a call while this one is where it is."""
    through = threading.Event()
    other = threading.Thread(target=lambda: (meanwhile(), through.set()), daemon=True)
    other.start()
    return through.wait(HELD_S)


@pytest.mark.parametrize("how", ["call", "post", "look"])
@pytest.mark.parametrize("other", ["call", "post", "look"])
def test_jobs_of_the_host_run_one_after_another(how: str, other: str) -> None:
    service, between, waits = Here(HostStorage()), list[bool](), [0.01, None]

    def meanwhile() -> None:
        if other == "call":
            service.call(lambda: None)
        elif other == "post":
            service.post(lambda: None)
        else:
            service.look()

    def job() -> None:
        between.append(comes_between(meanwhile))

    def again() -> float | None:
        if len(waits) == 1:
            job()
        return waits.pop(0)

    if how == "call":
        service.call(job)
    elif how == "post":
        service.post(job)
    else:
        service.post(again)
        service.look()
    assert between == [False]


def test_an_object_of_a_key_is_made_once_though_two_threads_want_it() -> None:
    made = list[int]()

    def make(key: int) -> object:
        made.append(key)
        if len(made) == 1:
            assert not comes_between(lambda: every.of(key))
        return object()

    every = Each[int, object](make)
    first = every.of(1)
    time.sleep(0)  # the other thread has it now, too
    assert every.of(1) is first and made == [1]
