"""Launches that are over are read back while the session goes on, and their memory given back."""

from __future__ import annotations

import time
import weakref
from typing import Any

import pytest

import ikp
from ikp.core import abi
from ikp.core.abi import SlotState
from ikp.core.decoding import decode
from ikp.core.segment import Segment as Buffer
from ikp.session import harvest, memory
from ikp.session.device import Device
from ikp.session.memory import SHARE
from ikp.session.storage import HostStorage
from tests.core.decoding.checks import assert_holds
from tests.host import Host, work
from tests.segments import Truth

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.any_pins

SIZE = 64 << 10
STATE = abi.LAUNCH_HEADER_BYTES + abi.field_offsets(abi.SLOT_HEADER)["state"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 16 buffers be many."""
    monkeypatch.setattr(harvest, "BEGIN_BYTES", 16 * SIZE)


def launch(host: Host, prof: ikp.profile, label: str = "k", **options: Any) -> Truth:
    """Record a launch as a kernel does: its address is taken, and then nobody holds its buffer."""
    buffer = prof.buffer(label, size=SIZE)
    buffer.data.data_ptr()
    return host.run(buffer, work(**options))


def held(prof: ikp.profile) -> list[Buffer]:
    """Return the segments that have memory."""
    recording: Any = prof._recording
    return [segment for segment in recording.segments if segment.nbytes]


def test_memory_does_not_grow_with_launches_and_all_come_back_in_order(host: Host) -> None:
    truths, most = [], 0
    with ikp.profile() as prof:
        for i in range(200):
            truths.append(launch(host, prof, f"launch {i}", records=1 + i % 7))
            most = max(most, len(held(prof)))
    assert most < 40
    assert_holds(prof.trace, *truths)
    assert [each.label for each in prof.trace.launches] == [f"launch {i}" for i in range(200)]
    assert {each.segment_bytes for each in prof.trace.launches} == {SIZE}


LAUNCH: dict[str, Any] = {"grid": (2, 1, 1), "num_warps": 1}


def sizes(host: Host, prof: ikp.profile, count: int, records: int, **options: Any) -> list[int]:
    """Record launches whose size nobody gave; return the bytes of their buffers."""
    found = []
    for _ in range(count):
        buffer = prof.buffer("k", **{**LAUNCH, **options})
        buffer.data.data_ptr()
        found.append(buffer.nbytes)
        host.run(buffer, work(records))
        del buffer
    return found


@pytest.mark.filterwarnings("ignore:.*records dropped")
def test_where_memory_is_short_a_buffer_has_room_for_what_launches_made(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = abi.segment_bytes(2, 100)
    monkeypatch.setitem(memory.DEFAULT_BYTES, "timeline", least)
    monkeypatch.setattr(harvest, "BEGIN_BYTES", 4 * SIZE)
    usual = abi.segment_bytes(2, memory.RECORDS["timeline"])
    with ikp.profile() as prof:
        found = sizes(host, prof, 30, 100)
        more = sizes(host, prof, 60, 400)
        (given,) = sizes(host, prof, 1, 3, size=SIZE)
        (other,) = sizes(host, prof, 1, 3, grid=(4, 1, 1))
        few = sizes(host, prof, 60, 1, num_warps=2)
    small = abi.segment_bytes(2, 2 * 100 + memory.MORE)
    assert found[:15] == [usual] * 15, "while there is memory, nothing is smaller"
    assert {*found[15:]} <= {usual, small} and found[-1] == small
    assert more[0] == small and more[-1] == usual, "what was lost counts, too"
    assert given == SIZE, "the user's word"
    assert other == abi.segment_bytes(4, memory.RECORDS["timeline"]), "nothing is known of such"
    assert min(few) == abi.segment_bytes(4, 2 * 1 + memory.MORE) > least
    dropped = [launch.dropped for launch in prof.trace.launches]
    assert dropped == [0] * 30 + [400 - 264 if size == small else 0 for size in more] + [0] * 62


@pytest.mark.filterwarnings("ignore:.*records dropped")
def test_launches_after_one_that_dropped_records_have_room_for_what_it_attempted(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = abi.segment_bytes(2, memory.RECORDS["timeline"])
    monkeypatch.setitem(memory.DEFAULT_BYTES, "timeline", usual)
    monkeypatch.setattr(harvest, "BEGIN_BYTES", 2 * usual)
    with ikp.profile() as prof:
        found = sizes(host, prof, 8, 1000)
        (given,) = sizes(host, prof, 1, 1000, size=SIZE)
    assert found[0] == usual and found[-1] == abi.segment_bytes(2, 1280)
    assert given == SIZE, "the user's word"
    dropped = [launch.dropped for launch in prof.trace.launches]
    assert dropped[0] == 1000 - 512 and dropped[len(found) - 1] == 0


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> int:
    """The default, which four launches may have; it takes eight times what a small launch gets."""
    monkeypatch.setitem(memory.SMALL, "timeline", 1024)
    default = 8 * abi.segment_bytes(2, 1024)
    monkeypatch.setitem(memory.DEFAULT_BYTES, "timeline", default)
    monkeypatch.setattr(harvest, "BEGIN_BYTES", 4 * default)
    monkeypatch.setattr(harvest, "SETTLED_S", 1000)  # nothing is read meanwhile
    return default


@pytest.mark.filterwarnings("ignore:.*records dropped")
def test_small_launches_have_the_default_until_one_was_read_as_far_as_little_is_unread(
    host: Host, first: int
) -> None:
    usual, enough, count = abi.segment_bytes(2, 1024), abi.segment_bytes(2, 2048), 1500
    with ikp.profile() as prof:
        found = sizes(host, prof, 16, count)
        (given,) = sizes(host, prof, 1, 3, size=SIZE)
    assert found[:4] == [first] * 4 and found[4] == usual, "memory is bounded"
    assert {*found[4:]} == {usual, enough} and found[-1] == enough, "as many as were attempted"
    assert given == SIZE, "the user's word"
    dropped = [launch.dropped for launch in prof.trace.launches if launch.segment_bytes != SIZE]
    assert dropped == [count - 1024 if size == usual else 0 for size in found]


def test_where_a_device_has_little_memory_left_the_first_launches_have_no_more(
    host: Host, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: 4 * first)
    with ikp.profile() as prof:
        assert sizes(host, prof, 2, 1) == [first // 2] * 2
    monkeypatch.setattr(memory, "free_bytes", lambda _: 0)
    with ikp.profile() as prof:
        assert sizes(host, prof, 2, 1) == [abi.segment_bytes(2, memory.SMALL["timeline"])] * 2


def test_a_share_of_what_a_device_has_left_is_not_short(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def free(device: Any) -> int:
        asked.append(device)
        return SHARE * 40 * SIZE

    monkeypatch.setattr(harvest, "free_bytes", free)
    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(40)]
        assert len(held(prof)) == 40
        assert len(asked) == 1, "it takes its time"
        truths += [launch(host, prof) for _ in range(40)]
        assert 20 < len(held(prof)) <= 41, "their sizes are given: none will be smaller"
    assert_holds(prof.trace, *truths)


def test_where_buffers_get_smaller_little_is_unread(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = abi.segment_bytes(2, 100)
    usual = abi.segment_bytes(2, memory.RECORDS["timeline"])
    monkeypatch.setitem(memory.DEFAULT_BYTES, "timeline", least)
    monkeypatch.setattr(harvest, "BEGIN_BYTES", 16 * usual)
    monkeypatch.setattr(harvest, "free_bytes", lambda _: SHARE * 40 * usual)
    with ikp.profile() as prof:
        assert sizes(host, prof, 41, 3) == [usual] * 41
        assert sizes(host, prof, 40, 3)[-1] < usual
        assert sum(each.nbytes for each in held(prof)) <= 17 * usual


def test_reading_waits_for_a_pause_of_launches(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds Python's lock, and launches would wait for that."""
    monkeypatch.setattr(HostStorage, "lasts", False)
    monkeypatch.setattr(harvest, "is_capturing", lambda _: False)
    for name in ("default_stream", "current_stream"):
        monkeypatch.setattr(harvest, name, lambda _: (None, 0))
    monkeypatch.setattr(harvest, "SETTLED_S", 0.001)
    monkeypatch.setattr(harvest, "_PAUSE_S", 0.1)
    monkeypatch.setattr(harvest, "_NO_PAUSE_S", 0.3)

    def read_in(seconds: float) -> int:
        before, end = len(held(prof)), time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.02)
            prof._recording._places[Device("cpu")].harvest._watch()  # type: ignore[union-attr]
            service.look()
        return before - len(held(prof))

    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(3)]
        service = prof._recording._places[Device("cpu")].service  # type: ignore[union-attr]
        assert read_in(0.05) == 0
        assert read_in(0.2) == 3
        for _ in range(40):  # without a pause, it is read in the end
            truths.append(launch(host, prof))
            read_in(0.02)
        assert len(held(prof)) < 30
    assert_holds(prof.trace, *truths)


def test_its_memory_is_freed(host: Host) -> None:
    chunks: list[weakref.ref[Any]] = []
    with ikp.profile() as prof:
        for _ in range(100):
            launch(host, prof)
            chunks.append(weakref.ref(held(prof)[-1].data))
        assert sum(chunk() is not None for chunk in chunks) < 40


def test_the_trace_so_far_has_what_was_read_back(host: Host) -> None:
    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(50)]
        assert len(held(prof)) < 50
        assert_holds(prof.trace, *truths)
        truths.append(launch(host, prof))
        assert_holds(prof.trace, *truths)
        prof.reset()
        assert_holds(prof.trace)
        truth = launch(host, prof)
    assert_holds(prof.trace, truth)


def test_a_buffer_that_somebody_holds_can_be_launched_with_again(host: Host) -> None:
    with ikp.profile() as prof:
        mine = prof.buffer("mine", size=SIZE)
        mine.data.data_ptr()
        host.run(mine, work(1))
        truths = [launch(host, prof) for _ in range(50)]
        again = host.run(mine, work(3))
    assert_holds(prof.trace, again, *truths)


def test_a_launch_that_is_not_known_to_be_over_stays(host: Host) -> None:
    with ikp.profile() as prof:
        unseen = [host.run(prof.buffer("unseen", size=SIZE), work()) for _ in range(30)]
        assert len(held(prof)) == 30
        for each in range(30):
            buffer = prof.buffer("captured", size=SIZE)
            buffer.data.data_ptr()
            buffer.data.ikp_notice.captured = True
            unseen.append(host.run(buffer, work(1 + each % 3)))
        del buffer
        assert len(held(prof)) == 60
    assert_holds(prof.trace, *unseen)


def test_warps_that_have_not_finished_are_waited_for(host: Host) -> None:
    with ikp.profile() as prof:
        late: list[Truth] = []
        states: list[Any] = []
        for _ in range(30):
            buffer = prof.buffer("late", size=SIZE)
            buffer.data.data_ptr()
            late.append(host.run(buffer, work()))
            state = held(prof)[-1].data[STATE : STATE + 1]
            assert state[0] == SlotState.FINISHED
            state[0] = SlotState.RUNNING
            states.append(state)
            del buffer
        assert len(held(prof)) == 30
        for state in states:
            state[0] = SlotState.FINISHED
    assert_holds(prof.trace, *late)


def test_what_has_settled_is_read_though_there_is_memory(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that fails later takes what a GPU holds with it."""
    monkeypatch.setattr(HostStorage, "lasts", False)
    monkeypatch.setattr(harvest, "is_capturing", lambda _: False)
    monkeypatch.setattr(harvest, "default_stream", lambda _: (None, 0))
    monkeypatch.setattr(harvest, "SETTLED_S", 0.2)
    with ikp.profile() as prof:
        mine = prof.buffer("mine", **LAUNCH)
        truths = [launch(host, prof) for _ in range(3)]
        assert len(held(prof)) == 4
        time.sleep(0.25)
        truths.append(launch(host, prof))
        assert len(held(prof)) == 2, "the one that somebody holds, and the latest"
        last = prof.buffer("k", **LAUNCH)
        assert last.nbytes == mine.nbytes, "memory is not short"
        truths = [host.run(mine, work(1)), *truths, host.run(last, work(1))]
    assert_holds(prof.trace, *truths)


def test_a_failed_gpu_is_no_error_of_the_next_launch(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Stream):
        def record_event(self) -> Event:
            raise RuntimeError("CUDA error")

    monkeypatch.setattr(harvest, "current_stream", lambda _: (Broken(), 0))
    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(60)]
        assert len(held(prof)) == 60
    assert_holds(prof.trace, *truths)


def test_what_can_not_be_read_is_not_looked_for_all_the_time(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostStorage, "lasts", False)
    monkeypatch.setattr(harvest, "is_capturing", lambda _: False)
    for name in ("default_stream", "current_stream"):
        monkeypatch.setattr(harvest, name, lambda _: (None, 0))
    monkeypatch.setattr(harvest, "free_bytes", lambda _: SHARE * 40 * SIZE)
    with ikp.profile() as prof:
        mine = [prof.buffer("mine", size=SIZE) for _ in range(30)]
        places: Any = prof._recording._places  # type: ignore[union-attr]
        (place,) = places.values()
        place.service.look()
        assert place.harvest._is_fuller()
        assert place.harvest._watch() == harvest.SETTLED_S, "the program holds them"
        truths = [host.run(each, work()) for each in mine]
        for each in mine:
            each.data.data_ptr()
        del mine, each
        place.harvest._group.append(place.harvest._waiting[0])
        assert place.harvest._watch() == harvest._FULLER_S, "some are being read"
        place.harvest._group.clear()
    assert_holds(prof.trace, *truths)


class Event:
    """Comes when it is told to."""

    def __init__(self) -> None:
        self.come = False

    def query(self) -> bool:
        return self.come


class Stream:
    """One on which events are recorded."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record_event(self) -> Event:
        self.events.append(Event())
        return self.events[-1]


def test_while_there_is_memory_nothing_is_waited_for(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream()
    monkeypatch.setattr(harvest, "current_stream", lambda _: (stream, 0))
    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(30)]
        assert len(stream.events) == 1 and len(held(prof)) == 30
        stream.events[0].come = True
        truths.append(launch(host, prof))
        assert len(held(prof)) < 31
    assert_holds(prof.trace, *truths)
    assert "launches_waited_s" not in prof.trace.provenance


def test_an_event_tells_of_the_launches_it_was_recorded_behind_alone(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A discarded buffer has the next launches grouped anew: some may run on at the old event."""
    stream = Stream()
    monkeypatch.setattr(harvest, "current_stream", lambda _: (stream, 0))
    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(24)]
        prof.discard(prof.buffer("k", size=SIZE))
        (place,) = prof._recording._places.values()  # type: ignore[union-attr]
        place.harvest._begin(stream, 0, short=True)
        first, second = stream.events
        first.come = True
        place.service.look()
        assert len(held(prof)) == 24
        second.come = True
        place.service.look()
        assert len(held(prof)) < 24
    assert_holds(prof.trace, *truths)


class Late(Event):
    """Comes when it has been asked for some times, as a kernel does that runs for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def query(self) -> bool:
        self.asked += 1
        return self.asked > 40


def test_a_program_that_is_faster_than_its_kernels_waits(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream()
    monkeypatch.setattr(stream, "record_event", Late)
    monkeypatch.setattr(harvest, "current_stream", lambda _: (stream, 0))
    with ikp.profile() as prof:
        truths, most = [], 0
        for _ in range(200):
            truths.append(launch(host, prof))
            most = max(most, len(held(prof)))
    assert most <= 33
    assert_holds(prof.trace, *truths)
    assert float(prof.trace.provenance["launches_waited_s"]) > 0


def test_a_kernel_that_waits_for_a_later_launch_is_waited_for_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, patience_s = Stream(), 0.2
    monkeypatch.setattr(harvest, "current_stream", lambda _: (stream, 0))
    monkeypatch.setattr(harvest, "PATIENCE_S", patience_s)
    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(100)]
        assert len(held(prof)) == 100
        stream.events[0].come = True
        truths += [launch(host, prof) for _ in range(3)]
    assert_holds(prof.trace, *truths)
    waited_s = float(prof.trace.provenance["launches_waited_s"])
    assert patience_s <= waited_s < 3 * patience_s, "once, and once more after it went on"


def test_what_is_decoded_now_is_not_read_back_meanwhile(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, stream, lifted = decode.decode, Stream(), []

    def decoded(*given: Any) -> Any:
        recording: Any = prof._recording
        for event in stream.events:
            event.come = True
        for place in recording._places.values():
            place.service.look()
        lifted.append(sum(each.lifted is not None for each in recording._taken))
        return real(*given)

    monkeypatch.setattr(harvest, "current_stream", lambda _: (stream, 0))
    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(24)]
        with monkeypatch.context() as patched:
            patched.setattr(decode, "decode", decoded)
            assert_holds(prof.trace, *truths)
        assert lifted == [0] and len(stream.events) == 1
        truths.append(launch(host, prof))
        assert len(held(prof)) < 16, "it goes on afterwards"
    assert_holds(prof.trace, *truths)


def test_a_copy_that_fails_loses_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(harvest, "lift_all", failing)
    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(60)]
        assert len(held(prof)) == 60
    assert_holds(prof.trace, *truths)


def test_a_launch_on_two_streams_or_by_a_graph_stays(host: Host) -> None:
    with ikp.profile() as prof:
        truths = []
        for captured in [False, True] * 15:
            buffer = prof.buffer("k", size=SIZE)
            buffer.data.data_ptr()
            buffer.data.ikp_notice.launched(0 if captured else 7, captured=captured)
            truths.append(host.run(buffer, work()))
        del buffer
        truths.append(launch(host, prof))
        assert len(held(prof)) == 31
    assert_holds(prof.trace, *truths)


def test_what_a_launcher_took_and_never_launched_with_is_left_out(host: Host) -> None:
    """A signal's handler may raise between the two."""
    with ikp.profile() as prof:
        prof.buffer("k", size=SIZE, kernel="k<1>")
        truth = launch(host, prof)
        kept = prof.buffer("k", size=SIZE, kernel="k<1>")
        kept.data.data_ptr()
        other = host.run(kept, work())
    assert_holds(prof.trace, truth, other)


def test_reading_leaves_the_program_most_of_the_time_unless_memory_is_short(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ikp.profile() as prof:
        truths = [launch(host, prof, f"launch {i}") for i in range(10)]
        recording: Any = prof._recording
        (place,) = recording._places.values()
        monkeypatch.setattr(place.harvest, "_rests", time.monotonic() + 1000)
        monkeypatch.setattr(place.harvest, "_most", lambda: 1 << 60)
        place.harvest._begin(None, 0, short=True)
        assert len(held(prof)) == 10
        monkeypatch.setattr(place.harvest, "_most", lambda: 0)
        place.service.look()
        assert not held(prof)
        assert place.harvest._rests < time.monotonic() + 500
    assert_holds(prof.trace, *truths)
