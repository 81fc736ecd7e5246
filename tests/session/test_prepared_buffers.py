"""Buffers by hand that were made ahead: they are as those that are made when they are asked for."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
import weakref
from typing import Any

import pytest

import ikp
from ikp.session import prepared_buffers
from ikp.session.known_launch import LASTS_S, revoke
from ikp.session.recorder import Recording
from ikp.session.storage import HostStorage
from tests.core.decoding.checks import assert_holds
from tests.host import Host, work

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.any_pins,
    pytest.mark.filterwarnings("ignore:nothing was recorded"),
]
SIZE, MANY = 64 << 10, 60


@pytest.fixture
def anew(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have buffers made ahead on the host, too; return the labels of those made when asked for."""
    made: list[str] = []
    real = Recording._take

    def take(self: Recording, asked: Any, *rest: Any) -> Any:
        made.append(asked.label)
        return real(self, asked, *rest)

    monkeypatch.setattr(HostStorage, "reuses", True)
    monkeypatch.setattr(Recording, "_take", take)
    backend: Any = host.backend
    backend.repeated = lambda prof: prof.on
    return made


def ready(prof: ikp.profile, anew: list[str], label: str = "k") -> None:
    """Take buffers until one was made ahead."""
    for _ in range(MANY):
        anew.clear()
        prof.buffer(label, size=SIZE)
        if not anew:
            return
    raise AssertionError("none is made ahead")


def test_each_launch_is_in_the_trace_once_in_its_order(host: Host, anew: list[str]) -> None:
    with ikp.profile() as prof:
        kept, truths = [], []
        for n in range(MANY):
            kept.append(prof.buffer("ab"[n % 2], size=SIZE))
            truths.append(host.run(kept[-1], work(records=1 + n % 5)))
        assert len({each.data.data_ptr() for each in kept}) == MANY
        assert len(anew) < MANY // 2
        assert len(prof.trace.launches) == MANY
    assert [each.label for each in prof.trace.launches] == ["a", "b"] * (MANY // 2)
    assert_holds(prof.trace, *truths)


def test_a_buffer_that_the_program_holds_stays_and_others_are_used_again(
    host: Host, anew: list[str]
) -> None:
    with ikp.profile() as prof:
        ready(prof, anew)
        held = prof.buffer("held", size=SIZE)
        for _ in range(4 * MANY):
            assert prof.buffer("k", size=SIZE).data.data_ptr() != held.data.data_ptr()
        truth = host.run(held, work())
    assert_holds(ikp.edit.select(prof.trace, launch="held"), truth)


def test_a_dropped_one_is_in_no_trace(host: Host, anew: list[str]) -> None:
    with ikp.profile() as prof:
        ready(prof, anew)
        before = len(prof.trace.launches)
        for _ in range(3):
            prof.discard(prof.buffer("k", size=SIZE))
        assert len(prof.trace.launches) == before


@pytest.mark.parametrize("change", ["revoked", "late", "disabled", "other size", "reset"])
def test_what_changes_has_the_next_one_made_anew(
    anew: list[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    size, enabled = SIZE, change != "disabled"
    with ikp.profile() as prof:
        ready(prof, anew)
        if change == "revoked":
            revoke()
        if change == "reset":
            prof.reset()
        if change == "late":
            late = time.monotonic() + 1.1 * LASTS_S
            monkeypatch.setattr(prepared_buffers.time, "monotonic", lambda: late)
        if change == "other size":
            size *= 2
        assert prof.buffer("k", size=size, enabled=enabled).enabled is enabled
        assert anew == ["k"]


def test_none_outlives_its_session_or_goes_to_a_child(
    host: Host, anew: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ikp.profile() as prof:
        ready(prof, anew)
        with monkeypatch.context() as off:
            off.setenv("IKP", "0")
            assert prof.buffer("k", size=SIZE) is None
        assert prof.buffer("k", size=SIZE) is not None
        recording: Any = prof._recording
        asked = next(iter(recording.requests.values()))
        pieces = [weakref.ref(each[0].data) for each in asked.prepared._free]
        assert pieces
        child = os.fork()
        if not child:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that says so
                os._exit(int(prof.buffer("k", size=SIZE) is not None))
        assert os.waitpid(child, 0)[1] == 0
    assert asked.prepared.take() is None
    with pytest.raises(ikp.UsageError):
        prof.buffer("k", size=SIZE)
    del asked, recording
    gc.collect()
    assert not any(each() is not None for each in pieces), "memory is given back"


def test_steps_that_are_not_recorded_have_none(anew: list[str]) -> None:
    with ikp.profile(steps=ikp.schedule(wait=1, warmup=1, active=1)) as prof:
        assert prof.buffer("k", size=SIZE) is None
        prof.step()
        assert not prof.buffer("k", size=SIZE).enabled
        prof.step()
        ready(prof, anew)
        prof.step()
        assert prof.buffer("k", size=SIZE) is None
        prof.step()
        assert not prof.buffer("k", size=SIZE).enabled


def test_threads_never_take_the_same(host: Host, anew: list[str]) -> None:
    """Each launch of eight threads is in the trace, beside one that reads it again and again."""
    taken: list[list[Any]] = [[] for _ in range(8)]
    with ikp.profile() as prof:

        def launch(mine: list[Any]) -> None:
            mine.extend(prof.buffer("k", size=4096) for _ in range(200))

        threads = [threading.Thread(target=launch, args=(each,)) for each in taken]
        for each in threads:
            each.start()
        while any(each.is_alive() for each in threads):
            assert prof.trace is not None
        every = [each for mine in taken for each in mine]
        assert len({each.data.data_ptr() for each in every}) == len(every) == 8 * 200
        assert len(anew) < len(every), "some were made ahead"
        recording: Any = prof._recording
        assert len(recording.segments) == len(every)
