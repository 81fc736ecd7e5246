"""Devices by the names that users pass, and the torch that a program has imported, if any."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ikp.errors import UsageError
from ikp.session.device import Device, device_of, torch_of_program

pytestmark = pytest.mark.any_pins


def test_what_torch_takes_as_a_device_is_one_and_nothing_else() -> None:
    torch = pytest.importorskip("torch")
    wishes = ["cpu", "cuda", "cuda:0", "cuda:12", "xpu:1", 3, "cuda:x", "gpu x", "", ":1", -1, None]
    for wish in [*wishes, 1.5, True, "cuda:-1", "cuda:"]:
        try:
            meant = torch.device(wish)
        except (RuntimeError, TypeError):
            meant = None
        if meant is None or wish is True:
            with pytest.raises(UsageError, match="is no torch device"):
                device_of(wish)
            continue
        found = device_of(wish)
        assert found == device_of(meant) == device_of(found)
        if wish != 3:  # torch means the accelerator that this machine has
            assert (found.type, found.index, str(found)) == (meant.type, meant.index, str(meant))
    assert device_of(3) == Device("cuda", 3)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = ModuleType("torch")
    made.__spec__ = SimpleNamespace(_initializing=False)
    made.backends = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_a_program_has_torch_once_all_of_it_is_imported(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert torch_of_program() is torch
    torch.__spec__._initializing = True
    del torch.backends
    assert torch_of_program() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert torch_of_program() is None
    assert "torch" not in sys.modules


def test_a_torch_for_the_cpu_alone_counts_as_none(torch: Any) -> None:
    torch.backends.cuda.is_built = lambda: False
    assert torch_of_program() is None
