"""Which launches of the driver's are recorded, as ``ikp run`` decides without any options."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ikp.backends.driver._hook import DriverObject, HandleKind
from ikp.backends.driver._seen_kernels import SeenKernel
from ikp.backends.labels import Labels
from ikp.backends.triton.unedited import _launching as launching
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

    monkeypatch.setattr(launching, "_capturing", asked)
    session: Any = SimpleNamespace(held=0)
    launcher = Everything(plan("kernel", level=level), lambda: session)
    kernel: Any = SeenKernel("adds", FUNCTION, MODULE, Labels())
    assert launcher.chosen(kernel) is session
    assert not launcher.plain
