"""Which launches of the driver's are recorded, as ``ikp run`` decides without any options."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ikp.backends.driver._hook import DriverObject, HandleKind
from ikp.backends.driver._seen_kernels import SeenKernel
from ikp.backends.labels import Labels
from ikp.backends.triton.unedited import _launching as launching
from ikp.backends.triton.unedited import _reasons as reasons
from ikp.backends.triton.unedited.everything import Everything
from ikp.unedited.plan import BEST, plan

pytestmark = pytest.mark.any_pins
FUNCTION = DriverObject(1, 1, 2, "", "", 0, HandleKind.FUNCTION)
MODULE = DriverObject(2, 2, 0, "", "a.cubin", 0, HandleKind.MODULE)


@pytest.mark.parametrize("level", ["machine", BEST])
def test_a_launch_that_a_graph_captures_is_recorded_and_torch_is_not_asked(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.profiler trips over what torch asks the CUDA runtime inside the program's launch."""

    def asked() -> bool:
        raise AssertionError("torch was asked inside the program's launch")

    monkeypatch.setattr(launching, "is_capturing", asked)
    session: Any = SimpleNamespace(held=0)
    launcher = Everything(plan("kernel", level=level), lambda: session)
    kernel: Any = SeenKernel("adds", FUNCTION, MODULE, Labels())
    assert launcher.chosen(kernel) is session
    assert not launcher.plain


def test_all_launches_of_a_kernel_in_one_capture_are_one() -> None:
    """And eager launches before, such as those of a warm-up, are no captures."""
    session: Any = SimpleNamespace(held=0)
    launcher = Everything(plan("kernel"), lambda: session, range(2))
    kernel: Any = SeenKernel("adds", FUNCTION, MODULE, Labels())
    woken: list[int] = []
    launcher.wakers.append(lambda: woken.append(launcher.epoch))
    assert [launcher.chosen(kernel, 0) for _ in range(3)] == [session, session, None]
    assert launcher.over(kernel) == reasons.NOT_CHOSEN
    launcher.capture_begins()
    assert woken == [1] and launcher.over(kernel) is None
    captures = [5, 5, 5, 6, 0, 7, 7]
    chosen = [launcher.chosen(kernel, each) is session for each in captures]
    assert chosen == [True, True, True, True, False, False, False]
    launcher.capture_ends()
    assert launcher.over(kernel) == reasons.NOT_CHOSEN


def test_captured_launches_alone_get_buffers_while_no_window_is_open() -> None:
    session: Any = SimpleNamespace(held=0)
    launcher = Everything(plan("kernel"), lambda: None, idle=True)
    kernel: Any = SeenKernel("adds", FUNCTION, MODULE, Labels())
    launcher.capture_begins()
    assert not launcher.standing and launcher.chosen(kernel, 5) is None
    launcher.standby = lambda: session
    assert launcher.standing
    assert launcher.chosen(kernel, 5) is session and launcher.chosen(kernel, 0) is None
    session.held = launcher.room
    assert launcher.chosen(kernel, 5) is None, "no more memory than a window's may be taken"
    launcher.capture_ends()
    assert not launcher.standing and launcher.chosen(kernel, 0) is None


def test_a_capture_outside_of_windows_is_none_of_the_launches_that_are_counted_in_one() -> None:
    """A server captures a graph for each size of a batch, and any may be replayed in a window."""
    session: Any = SimpleNamespace(held=0)
    launcher = Everything(plan("kernel"), lambda: None, range(2), idle=True)
    launcher.standby = lambda: session
    kernel: Any = SeenKernel("adds", FUNCTION, MODULE, Labels())
    launcher.capture_begins()
    assert [launcher.chosen(kernel, each) for each in range(5, 15)] == [session] * 10
    launcher.begin_anew()
    launcher.session, launcher.idle = lambda: session, False
    chosen = [launcher.chosen(kernel, each) for each in (20, 20, 21, 22)]
    assert chosen == [session, session, session, None]


@pytest.mark.parametrize("captures", [True, False])
def test_torch_is_asked_whether_its_stream_is_captured(
    monkeypatch: pytest.MonkeyPatch, captures: bool
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captures)
    assert reasons.is_capturing() is captures
