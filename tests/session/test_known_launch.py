"""A launch whose device and stream are known: torch is asked for neither."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ikp.session import wishes
from ikp.session.device import Device
from ikp.session.known_launch import Launching, SlowError, ask_device
from ikp.session.memory import free_bytes
from ikp.session.storage import GpuStream, current_stream, is_capturing
from ikp.session.wishes import Wishes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.any_pins


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device of a torch that must not be asked."""

    def fail(*_: Any) -> Any:
        raise AssertionError("torch was asked")

    for name in ("current_device", "current_stream", "is_current_stream_capturing", "mem_get_info"):
        monkeypatch.setattr(torch.cuda, name, fail)
    return Device("cuda", 1)


def test_torch_is_asked_for_neither_stream_nor_device(gpu: Any) -> None:
    holds, elsewhere = (wishes.lasting(gpu, given=given) for given in (False, True))
    with Launching(1, 7):
        assert current_stream(gpu) == (GpuStream(7, gpu), 7)
        assert not is_capturing(gpu)
        assert holds()
        with Launching(0, 9):
            assert current_stream(gpu)[1] == 9
            assert not holds()
            assert elsewhere(), "the user has named the device"
        assert current_stream(gpu)[1] == 7
    with pytest.raises(AssertionError, match="torch was asked"):
        current_stream(gpu)


def test_what_asks_torch_is_refused_inside(gpu: Any) -> None:
    ask_device()
    with Launching(1, 7):
        for ask in (ask_device, lambda: free_bytes(gpu), lambda: Wishes().settle(None, None, None)):
            with pytest.raises(SlowError):
                ask()
        other = threading.Thread(target=ask_device)  # of another thread, nothing is known
        other.start()
        other.join()
    ask_device()
