"""A GPU that is reset: what was recorded comes to the host before it, and nothing is used after."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import ikp
from ikp.driver import cuda
from ikp.errors import IkpError, PatchError
from ikp.session import harvest, leaving
from ikp.session.service import DeviceService
from tests.core.decoding.checks import assert_holds
from tests.host import Host, work
from tests.session.test_harvest import SIZE, STATE, launch
from tests.session.test_service import CPU, Reused, gpu, storage, until

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.any_pins
__all__ = ["gpu", "storage"]


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "_has_ended", lambda _: True)


class FreedError(Exception):
    """Memory was used that a reset has freed."""


def reset(storage: Reused, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each use of the device's memory fail from now on."""

    def fail(*_: Any) -> None:
        raise FreedError

    for name in ("zeroed", "clear", "read", "write", "read_all", "clear_all", "peek", "stage"):
        monkeypatch.setattr(storage, name, fail)


def test_all_launches_are_in_the_trace_of_a_gpu_that_was_reset(
    host: Host, gpu: DeviceService, storage: Reused, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ikp.profile() as prof:
        truths = [launch(host, prof, f"launch {i}", records=1 + i % 7) for i in range(40)]
        leaving._leave(CPU, gpu)
        reset(storage, monkeypatch)
        with pytest.raises(IkpError, match="has reset the GPU"):
            prof.buffer("later", size=SIZE)
        with pytest.raises(IkpError, match="has reset the GPU"):
            prof.buffer("of another size", size=2 * SIZE)
    assert_holds(prof.trace, *truths)
    assert [each.label for each in prof.trace.launches] == [f"launch {i}" for i in range(40)]


@pytest.mark.filterwarnings("ignore:k. 1 warp never reached finish")
def test_a_launch_whose_warps_did_not_finish_is_copied_whole(
    host: Host, gpu: DeviceService, storage: Reused, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ikp.profile() as prof:
        buffer = prof.buffer("k", size=SIZE)
        buffer.data.data_ptr()
        host.run(buffer, work(3))
        buffer.data.numpy()[STATE] = 1
        del buffer
        leaving._leave(CPU, gpu)
        reset(storage, monkeypatch)
    (one,) = prof.trace.launches
    assert one.label == "k" and len(prof.trace.events.start_ns)


def test_no_thread_of_the_gpus_is_left(host: Host, gpu: DeviceService) -> None:
    with ikp.profile() as prof:
        launch(host, prof)
        leaving._leave(CPU, gpu)
        assert not gpu.alive


def test_what_was_read_before_a_kernel_failed_is_kept(
    host: Host, gpu: DeviceService, storage: Reused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> bool:
        raise PatchError("CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(leaving, "_has_ended", fail)
    with ikp.profile() as prof:
        truths = [launch(host, prof) for _ in range(40)]
        until(lambda: prof._recording._taken[0].lifted is not None)
        read = sum(each.lifted is not None for each in prof._recording._taken)
        with pytest.warns(ikp.IkpWarning, match="is lost: CUDA_ERROR_ILLEGAL_ADDRESS"):
            leaving._leave(CPU, gpu)
        reset(storage, monkeypatch)
    assert len(prof.trace.launches) >= read > 0
    assert_holds(prof.trace, *truths[: len(prof.trace.launches)])


def test_an_error_while_reading_leaves_no_thread_behind(
    host: Host, gpu: DeviceService, storage: Reused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reset comes all the same: a thread that goes on would use what it has freed."""
    with ikp.profile() as prof:
        launch(host, prof)
        monkeypatch.setattr(harvest, "copies_of", lambda *_: 1 // 0)
        with pytest.warns(ikp.IkpWarning, match="is lost: ZeroDivisionError"):
            leaving._leave(CPU, gpu)
        assert not gpu.alive
        reset(storage, monkeypatch)
    assert not prof.trace.launches


def test_a_reset_at_the_programs_end_waits_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.12 starts none once the program is over; C++ destructors reset the GPU then."""
    monkeypatch.undo()

    def refuse(_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    waited: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(cuda, "wait", lambda: waited.append(1))
    assert leaving._has_ended(0)
    assert waited


def test_a_kernel_that_runs_on_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reset ends it."""
    monkeypatch.undo()
    over = threading.Event()
    monkeypatch.setattr(cuda, "use_primary_context", lambda _: None)
    monkeypatch.setattr(cuda, "wait", over.wait)
    monkeypatch.setattr(leaving, "_PATIENCE_S", 0.01)
    assert not leaving._has_ended(0)
    over.set()
    assert leaving._has_ended(0)
