"""Segments taken ahead: those that are launched with are in the trace, and no others."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

import ikp
from ikp.backends.repeats import Repeat
from ikp.core.segment import EVERYTHING
from ikp.session import harvest, recorder
from ikp.session.device import Device
from ikp.session.known_launch import ask_device, revokers
from ikp.session.storage import HostStorage
from tests.core.decoding.checks import assert_holds
from tests.host import Host, work

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.any_pins

SIZE = 64 << 10


@pytest.fixture
def made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have segments made ahead on the host, too."""
    monkeypatch.setattr(HostStorage, "reuses", True)


def request(prof: ikp.profile, label: str = "k") -> tuple[Any, Any]:
    """Return a recording and its request for a buffer, of which some are at hand."""
    for _ in range(4):
        prof.buffer(label, size=SIZE, kernel="k")
    recording: Any = prof._recording
    found = [each for each in recording.requests.values() if each.label == label]
    return recording, found[0]


class Launcher:
    """Launches with the segments of a stock, as the library before the driver does."""

    def __init__(self, stock: Any) -> None:
        self.stock, self.pieces, self.taken = stock, list(stock._left), 0
        self.stopped = False
        stock.stop = self.stop

    def stop(self) -> int:
        self.stopped = True
        return self.taken

    def take(self) -> int:
        assert not self.stopped
        self.taken += 1
        return self.taken - 1

    def launch(self, host: Host, **options: Any) -> Any:
        number = self.take()
        piece = self.pieces[number]
        truth = host.run(SimpleNamespace(data=piece, nbytes=len(piece)), work(**options))
        self.stock.times[number] = time.monotonic_ns()
        return truth


def launches(prof: ikp.profile, label: str = "k") -> Any:
    recording, asked = request(prof, label)
    stock = asked.ahead(asked, 8, 0)
    assert stock is not None and stock.count >= 2
    return recording, Launcher(stock)


@pytest.mark.usefixtures("made_ahead")
@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_launches_are_in_the_trace_in_their_order_and_what_is_left_is_not(host: Host) -> None:
    with ikp.profile() as prof:
        _, a = launches(prof, "a")
        _, b = launches(prof, "b")
        truths = [each.launch(host, records=n) for n, each in enumerate((a, b, a), 1)]
    assert a.stopped and b.stopped, "no launch takes one any more"
    heard = [each.label for each in prof.trace.launches]
    assert heard[-3:] == ["a", "b", "a"]
    assert_holds(prof.trace, *truths)


@pytest.mark.usefixtures("made_ahead")
@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_a_trace_so_far_has_them_and_more_may_come(host: Host) -> None:
    told: list[int] = []
    with ikp.profile() as prof:
        recording, some = launches(prof)
        some.stock.launched = told.append
        some.launch(host)
        before = len(prof.trace.launches)
        some.launch(host)
        assert not some.stopped and len(prof.trace.launches) == before + 1
        assert told == [1, 1]
        assert len(recording.segments) == 4 + 2


@pytest.mark.usefixtures("made_ahead")
@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_a_refused_launch_has_none(host: Host) -> None:
    with ikp.profile() as prof:
        recording, some = launches(prof)
        some.stock.times[some.take()] = -1
        some.launch(host)
        assert len(recording.segments) == 4 + 1


@pytest.mark.usefixtures("made_ahead")
@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_memory_of_a_launch_under_way_stays_and_the_rest_is_used_again(host: Host) -> None:
    with ikp.profile() as prof:
        recording, some = launches(prof)
        taken, ready = some.take(), recording._places[Device("cpu")].shelf
        recording.collect(end=True)
        assert some.stopped and len(recording._stocks) == 1
        some.stock.times[taken] = time.monotonic_ns()
        recording.collect(end=True)
        assert not recording._stocks and len(recording.segments) == 4 + 1
        kind = some.stock._kind
        at_hand = {each.data_ptr() for each in ready.ready(kind).pieces}
        assert at_hand >= {each.data_ptr() for each in some.pieces[1:]}
        assert some.pieces[0].data_ptr() not in at_hand
        _, late = launches(prof)
        late.take()
    assert recorder._pinned[-1] is late.stock, "a kernel may write to it after the session"
    recorder._pinned.pop()


@pytest.mark.usefixtures("made_ahead")
@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_a_session_that_records_nothing_now_has_none(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ikp.profile(steps=ikp.schedule(wait=1, active=1, repeat=1)) as prof:
        prof.step()
        _, asked = request(prof)
        assert asked.ahead(asked, 4, 0) is not None
        with monkeypatch.context() as off:
            off.setenv("IKP", "0")
            assert asked.ahead(asked, 4, 0) is None
        prof.step()
        assert asked.ahead(asked, 4, 0) is None
    assert asked.ahead(asked, 4, 0) is None


def test_sessions_and_steps_revoke_what_was_taken_ahead(host: Host) -> None:
    said: list[int] = []
    revokers.append(lambda: said.append(1))
    try:
        with ikp.profile(steps=ikp.schedule(active=1)) as prof:
            assert said
            said.clear()
            prof.step()
            assert said
            said.clear()
            prof.reset()
            assert said
            said.clear()
        assert said
    finally:
        revokers.pop()


@pytest.mark.usefixtures("made_ahead")
@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_where_torch_is_to_be_asked_none_is_taken_and_the_launch_goes_on(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(_: object) -> None:
        ask_device()

    with ikp.profile() as prof:
        _, asked = request(prof)
        segment = SimpleNamespace(data=SimpleNamespace(ikp_notice=SimpleNamespace(request=asked)))
        module: Any = SimpleNamespace(words_behind=lambda *_: (0,))
        repeat = Repeat(module, segment, ((1, 1, 1), 1, EVERYTHING), 0)
        assert repeat.ahead(0, 4) is not None
        monkeypatch.setattr(harvest, "BEGIN_BYTES", 0)
        monkeypatch.setattr(harvest, "free_bytes", ask)
        assert repeat.ahead(0, 4) is None


@pytest.mark.usefixtures("made_ahead")
@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_launches_are_noted_in_pauses_and_some_at_a_time(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next launch waits for Python's lock while launches are noted."""
    monkeypatch.setattr(HostStorage, "lasts", False)
    monkeypatch.setattr(harvest, "default_stream", lambda _: (None, 0))
    monkeypatch.setattr(recorder, "_SOME", 2)
    with ikp.profile() as prof:
        for _ in range(3):
            recording, some = launches(prof)
        (place,) = recording._places.values()
        for _ in range(3):
            some.launch(host)
        place.harvest._noted = time.monotonic()
        assert place.harvest._watch() == harvest._LOOK_S, "a launch has just been made"
        assert len(recording._taken) == 3 * 4
        time.sleep(harvest._PAUSE_S)
        assert place.harvest._watch() == harvest._PAUSE_S, "there are more"
        assert len(recording._taken) == 3 * 4 + 2
        assert place.harvest._watch() == harvest.SETTLED_S
        assert len(recording._taken) == 3 * 4 + 3
        place.harvest._noted = time.monotonic() - harvest._NO_PAUSE_S
        some.launch(host)
        place.harvest._watch()
        assert len(recording._taken) == 3 * 4 + 4, "it waits so long for a pause, and no longer"
