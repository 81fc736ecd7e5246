"""A session that asks for what machine code can't record: it speaks for itself alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.backends.patched import take
from ikp.backends.triton.unedited import _launching as launching
from ikp.backends.triton.unedited import _machine_code as machine_code
from ikp.backends.triton.unedited._launching import Launcher
from ikp.core.abi import ClockKind
from ikp.errors import IkpWarning, PatchError
from ikp.unedited.plan import plan
from tests.backends.sass import spec

pytestmark = pytest.mark.any_pins


@dataclass(eq=False)
class Session:
    """A session with a clock."""

    clock: ClockKind = ClockKind.CYCLES
    facts: dict[str, str] = field(default_factory=dict)

    def buffer(self, label: str, **options: object) -> Any:
        data = SimpleNamespace(numel=lambda: 4096)
        return SimpleNamespace(spec_text=str(spec(clock=self.clock)), data=data)

    def discard(self, prof: Any) -> None:
        pass


@dataclass
class Kernel:
    """A compiled kernel, and how it was launched."""

    name: str = "k"
    unknown: bool = False  # its machine code is
    ways: list[str] = field(default_factory=list)
    cache_key = "compiled"

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def fn(self) -> Any:
        return SimpleNamespace(__module__="m", __qualname__=self.name)

    def run(self, *args: object, **kwargs: object) -> None:
        if launch := take():
            if self.unknown:
                raise PatchError("it is not known.")
            launch.buffer((1, 1, 1), 4, 1)
            self.ways.append("machine")


@pytest.fixture(autouse=True)
def stepped_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(kernel: Kernel, _: object) -> Any:
        return SimpleNamespace(run=lambda *args, **kwargs: kernel.ways.append("source"))

    monkeypatch.setattr(machine_code, "install", lambda: None)
    monkeypatch.setattr(launching, "_capturing", lambda: False)
    monkeypatch.setattr(launching, "kernel_twin", twin)


def launched(launcher: Launcher, kernel: Any) -> str:
    launcher.run(kernel, kernel.run, grid=(1,))
    return str(kernel.ways[-1])


def test_the_next_session_has_its_records_in_machine_code_again() -> None:
    now = Session(ClockKind.GLOBALTIMER)
    launcher = Launcher(plan(level=None), lambda: now)
    kernel, other = Kernel(), Kernel("other")
    with pytest.warns(IkpWarning, match="have no clock=") as told:
        assert [launched(launcher, each) for each in (kernel, kernel, other)] == ["source"] * 3
    assert len(told) == 1
    now = Session()
    assert [launched(launcher, each) for each in (kernel, other)] == ["machine"] * 2


def test_a_kernel_whose_code_is_not_known_is_never_tried_again() -> None:
    now = Session()
    launcher = Launcher(plan(level=None), lambda: now)
    kernel = Kernel(unknown=True)
    with pytest.warns(IkpWarning, match="not known"):
        assert launched(launcher, kernel) == "source"
    now = Session()
    assert launched(launcher, kernel) == "source" and launcher.refused
    assert launched(launcher, Kernel("other")) == "machine"
