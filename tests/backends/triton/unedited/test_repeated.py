"""Launches that repeat an earlier one: each has a buffer of its own, and none is lost."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import triton
import triton.language as tl

import ikp
from ikp.backends.triton.unedited import _machine_code as machine_code
from ikp.driver import cuda, cuda_memory
from ikp.session.recorder import Recording
from ikp.session.storage import HostStorage
from tests.backends.triton.test_foreign import arguments
from tests.backends.triton.unedited.on_air import MARKED, PLAIN, on_air

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore:nothing was recorded"),
]


@triton.jit
def counted(out, n):
    for k in range(n):
        tl.store(out + k, k)


class Seen:
    """What was launched: functions, addresses of buffers, and how many launches repeated none."""

    def __init__(self) -> None:
        self.functions: list[int] = []
        self.written: list[tuple[int, ...]] = []
        self.anew = 0

    def since(self) -> tuple[int, int]:
        """Return how many launches there were since the last call, and how many repeated none."""
        found = len(self.written), self.anew
        self.written, self.anew = [], 0
        return found


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    made = Seen()

    def launch(x: int, y: int, z: int, stream: int, function: int, *_: object) -> None:
        made.functions.append(function)

    def run(*args: Any, **options: Any) -> object:
        made.anew += 1
        return real(*args, **options)

    on_air(monkeypatch, counted, lambda: launch, lambda _: None)
    real = machine_code._run
    monkeypatch.setattr(machine_code, "_run", run)
    monkeypatch.setattr(
        cuda_memory, "write", lambda cell, words, stream: made.written.append(words)
    )
    return made


def test_a_launch_like_an_earlier_one_takes_a_buffer_of_its_own_and_no_more(seen: Seen) -> None:
    marked = ikp.instrument(counted, level="machine")
    with ikp.profile() as prof:
        for _ in range(5):
            marked[(2,)](*arguments())
        addresses, behind = {each[0] for each in seen.written}, {each[1:] for each in seen.written}
        assert len(addresses) == 5 and len(behind) == 1
        assert seen.since() == (5, 1)
        recording: Any = prof._recording
        segments = recording.segments
        assert {each.data.data_ptr() for each in segments} == addresses
        assert all(each.is_over(0) for each in recording._taken), "it may be read back"
        assert len({(each.label, each.kernel, each.nbytes, each.rank) for each in segments}) == 1
        assert seen.functions == [MARKED] * 5
    assert Counter(each.label for each in prof.trace.launches) == {}, "none has run"


@pytest.mark.parametrize(
    ("change", "anew"),
    [
        ("grid", 1),
        ("context", 1),
        ("thread", 1),
        ("nothing", 0),
    ],
)
def test_what_another_grid_context_or_thread_launches_repeats_none(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, change: str, anew: int
) -> None:
    marked = ikp.instrument(counted, level="machine")
    with ikp.profile():
        for _ in range(2):
            marked[(2,)](*arguments())
        assert seen.since() == (2, 1)
        if change == "context":
            monkeypatch.setattr(cuda, "context_number", lambda: 5)
        grid = (3,) if change == "grid" else (2,)
        if change == "thread":
            thread = threading.Thread(target=lambda: marked[grid](*arguments()))
            thread.start()
            thread.join()
        else:
            marked[grid](*arguments())
        assert seen.since() == (1, anew)
        marked[(2,)](*arguments())
    assert seen.since()[0] == 1


def test_a_session_has_the_launches_made_in_it_alone(seen: Seen) -> None:
    marked = ikp.instrument(counted, level="machine")
    session = ikp.profile()
    for _ in range(2):
        with session as prof:
            for _ in range(3):
                marked[(2,)](*arguments())
            assert seen.since() == (3, 1), "another opening has other buffers"
            recording: Any = prof._recording
            assert len(recording.segments) == 3
        marked[(2,)](*arguments())
        assert seen.since() == (0, 0) and seen.functions[-1] == PLAIN


def test_what_is_switched_off_or_captured_is_asked_about_at_each_launch(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = ikp.instrument(counted, level="machine")
    with ikp.profile(steps=ikp.schedule(wait=1, active=1)) as prof:
        marked[(2,)](*arguments())
        assert seen.since() == (0, 1), "no buffer while the session waits"
        prof.step()
        for _ in range(3):
            marked[(2,)](*arguments())
        assert seen.since() == (3, 1)
        with monkeypatch.context() as off:
            off.setenv("IKP", "0")
            marked[(2,)](*arguments())
            assert seen.since()[0] == 0
        marked[(2,)](*arguments())
        assert seen.since() == (1, 0)
        with monkeypatch.context() as capturing:
            capturing.setattr(cuda, "capturing", lambda _: True)
            capturing.setattr(machine_code, "aside", nullcontext)
            marked[(2,)](*arguments())
        assert seen.since() == (1, 1)
        prof.step()
        marked[(2,)](*arguments())
        assert seen.since()[0] == 0


def test_only_as_many_are_recorded_as_were_asked_for(seen: Seen) -> None:
    marked = ikp.instrument(counted, level="machine", launches="1:4")
    with ikp.profile():
        for _ in range(6):
            marked[(2,)](*arguments())
    assert seen.functions == [PLAIN, MARKED, MARKED, MARKED, PLAIN, PLAIN]
    assert seen.since() == (3, 1)


def test_launches_that_come_soon_have_buffers_that_were_taken_ahead(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostStorage, "reuses", True)
    asked, memory = list[int](), Recording.memory
    monkeypatch.setattr(
        Recording, "memory", lambda *args, **how: asked.append(1) or memory(*args, **how)
    )
    marked = ikp.instrument(counted, level="machine")
    with ikp.profile(buffer_size=1 << 16, steps=ikp.schedule(active=1, repeat=1)) as prof:
        for _ in range(200):
            marked[(2,)](*arguments())
        recording: Any = prof._recording
        addresses = [each[0] for each in seen.written]
        assert len({*addresses}) == 200 and seen.since() == (200, 1)
        assert len(asked) < 12, "few of them"
        assert sorted(each.data.data_ptr() for each in recording.segments) == sorted(addresses)
        assert all(each.is_over(0) for each in recording._taken), "it may be read back"
        for _ in range(2):
            marked[(2,)](*arguments())
        prof.step()
        marked[(2,)](*arguments())
        assert seen.since() == (2, 0), "the schedule is over"


def test_a_launch_that_fails_has_no_buffer(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostStorage, "reuses", True)
    marked = ikp.instrument(counted, level="machine")
    with ikp.profile() as prof:
        for _ in range(30):
            marked[(2,)](*arguments())
        count = len(prof._recording.segments)  # type: ignore[union-attr]
        with monkeypatch.context() as failing:
            failing.setattr(cuda_memory, "write", fail)
            with pytest.raises(RuntimeError, match="a fault"):
                marked[(2,)](*arguments())
        marked[(2,)](*arguments())
        assert len(prof._recording.segments) == count + 1  # type: ignore[union-attr]


def fail(*_: object) -> None:
    raise RuntimeError("a fault")


def test_a_thread_that_has_called_nothing_of_cuda_gets_a_context_first(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(cuda, "need_context", lambda: order.append("context"))
    monkeypatch.setattr(cuda, "capturing", lambda _: order.append("asked"))
    with ikp.profile():
        ikp.instrument(counted, level="machine")[(2,)](*arguments())
    assert order[:2] == ["context", "asked"] and seen.since() == (1, 1)
