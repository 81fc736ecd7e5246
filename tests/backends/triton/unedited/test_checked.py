"""A launch of Triton's that is checked: what its arguments are called, and what is launched."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.backends import checked
from ikp.backends.loaded import Module
from ikp.backends.patched import RecordedLaunch, take
from ikp.backends.reached import Reached
from ikp.backends.triton.unedited import _arguments as pointed_to
from ikp.backends.triton.unedited import _machine_code as machine_code
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited.everything import Everything
from ikp.checking.comparison import Buffer, CheckResult
from ikp.checking.messages import LaunchConfiguration, Request
from ikp.core.abi import Language
from ikp.driver import cuda, cuda_functions
from ikp.errors import CheckError, IkpWarning, PatchError
from ikp.probes.made_patch import Patch
from ikp.unedited.plan import plan
from tests.backends.sass import spec

pytestmark = pytest.mark.any_pins


@dataclass
class Tensor:
    """What has an address."""

    address: int

    def data_ptr(self) -> int:
        return self.address


@dataclass
class Descriptor:
    base: Tensor
    block_shape: tuple[int, ...] = (8, 8)


LAUNCHER = ((0, 1, 2), None, None, None)
"""What stands before a kernel's arguments: metadata and hooks."""


def test_arguments_are_named_by_what_they_point_to() -> None:
    values = (*LAUNCHER, Tensor(4096), 3, Descriptor(Tensor(512)), (Tensor(8192), 1), Tensor(4096))
    names = ["x", "n", "desc", "pair", "y"]
    assert pointed_to.names(values, names) == {4096: "x and y", 512: "desc", 8192: "pair[0]"}
    assert pointed_to.names(values, ()) == {}


PLAIN, RECORDED = 7, 8
KERNEL = SimpleNamespace(
    name="k",
    metadata=SimpleNamespace(num_ctas=1),
    src=SimpleNamespace(fn=SimpleNamespace(arg_names=["out"])),
)
REST = (*LAUNCHER, Tensor(4096))
REFUSED = CheckResult("out differs", refused=True)
EQUAL = CheckResult("1 buffer, 16 bytes, equal bit for bit")


@dataclass
class Made:
    """A patched kernel; what it is asked."""

    patch: Patch
    function: int = RECORDED
    pointed: int = 0

    def words(self, *_: object) -> tuple[int, ...]:
        return (1, 2)

    def point(self, *_: object, captured: bool) -> tuple[int, ...]:
        assert not captured
        self.pointed += 1
        return (1, 2)


@pytest.fixture
def launching(monkeypatch: pytest.MonkeyPatch) -> Callable[[CheckResult | None], Any]:
    """Return what launches a kernel that is found to be so, and what was launched."""

    def launch(verdict: CheckResult | None) -> Any:
        made, functions = Made(Patch(b"", ("k",), 4, (32, 32))), list[int]()

        def plain(x: int, y: int, z: int, stream: int, function: int, *rest: object) -> str:
            functions.append(function)
            return "launched"

        monkeypatch.setattr(machine_code, "modules", SimpleNamespace(get=lambda *_: made))
        monkeypatch.setattr(cuda, "device", lambda: 0)
        monkeypatch.setattr(machine_code, "checked", lambda *_: verdict)
        monkeypatch.setattr(cuda_functions, "like", lambda *_, **__: None)
        monkeypatch.setattr(cuda, "capturing", lambda _: False)
        meant = RecordedLaunch(
            plan(level="machine", check=True), Language.TRITON, lambda *_: "a buffer"
        )
        assert machine_code._run(KERNEL, plain, meant, 1, 1, 1, 0, PLAIN, *REST) == "launched"
        return functions, made.pointed, meant.verdict

    return launch


@pytest.mark.parametrize("verdict", [EQUAL, None])
def test_a_checked_kernel_is_launched_once_with_records(
    verdict: CheckResult | None, launching: Callable[[CheckResult | None], Any]
) -> None:
    assert launching(verdict) == ([RECORDED], 1, verdict)


def test_a_refused_kernel_is_launched_once_without(
    launching: Callable[[CheckResult | None], Any],
) -> None:
    assert launching(REFUSED) == ([PLAIN], 0, REFUSED)


@dataclass
class Checks:
    """Counts checks, and says what they find."""

    found: CheckResult | PatchError
    asked: list[Request] = field(default_factory=list)

    def check(self, request: Request) -> CheckResult:
        self.asked.append(request)
        if isinstance(self.found, PatchError):
            raise self.found
        return self.found


PROF = SimpleNamespace(address=1 << 33, data=SimpleNamespace(numel=lambda: 4096))
SCRATCH = Buffer("argument 1", 1 << 20, 64)
OUT = Buffer("out", 4096, 16)


class Recorder:
    """A session, which is known by reference."""


@pytest.fixture
def checking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[CheckResult | None]]:
    """Return what checks two launches of a module in each session."""

    def two(
        checks: Checks,
        module: Module,
        *,
        capturing: bool = False,
        wait: Callable[[], object] = lambda: None,
        sessions: Sequence[Recorder] = (Recorder(),),
    ) -> list[CheckResult | None]:
        used = list[int]()
        monkeypatch.setattr(checked, "check", checks.check)
        monkeypatch.setattr(checked, "reached", lambda *_: Reached((OUT,), (SCRATCH,)))
        monkeypatch.setattr(cuda, "capturing", lambda _: capturing)
        monkeypatch.setattr(cuda, "context", lambda: 7)
        monkeypatch.setattr(cuda, "use", used.append)
        monkeypatch.setattr(cuda, "wait", wait)
        values = [(0, b"12345678"), (8, b"abcd")]
        launched = checked.PlainLaunch(
            "k", b"plain", LaunchConfiguration((1, 1, 1), (32, 1, 1), 0), values
        )
        made = [
            checked.checked(module, 0, PROF, (5, 6), lambda: launched, weakref.ref(each))
            for each in sessions
            for _ in range(2)
        ]
        compared = 0 if capturing else 1 if module.refused else len(sessions)
        assert used == [7] * compared, "a thread has no context of its own"
        return made

    return two


def module() -> Module:
    return Module(Patch(b"patched", ("k",), 4, (32, 32)), 1, RECORDED, 0)


def test_a_module_is_checked_once(checking: Callable[..., list[CheckResult | None]]) -> None:
    checks = Checks(EQUAL)
    assert checking(checks, module()) == [EQUAL, None]
    (request,) = checks.asked
    assert request.buffers == (OUT,)
    assert request.beside == (Buffer("records", 1 << 33, 4096), SCRATCH)
    assert request.plain.parameters == b"12345678abcd" and request.plain.offsets == (0, 8)
    assert (request.plain.cubin, request.recorded.cubin) == (b"plain", b"patched")
    told = {"ikp_buffer": (5).to_bytes(8, "little") + (6).to_bytes(8, "little")}
    assert request.recorded.constants == told and not request.plain.constants


def test_each_session_has_a_check_of_its_own(
    checking: Callable[..., list[CheckResult | None]],
) -> None:
    checks, sessions = Checks(EQUAL), [Recorder(), Recorder()]
    assert checking(checks, module(), sessions=sessions) == [EQUAL, None, EQUAL, None]
    assert len(checks.asked) == 2
    refused = Checks(REFUSED)
    assert checking(refused, module(), sessions=sessions) == [REFUSED] * 4
    assert len(refused.asked) == 1


def test_a_module_that_was_refused_stays_so(
    checking: Callable[..., list[CheckResult | None]],
) -> None:
    checks = Checks(REFUSED)
    assert checking(checks, module()) == [REFUSED, REFUSED] and len(checks.asked) == 1


def test_in_a_graph_that_is_captured_nothing_is_checked(
    checking: Callable[..., list[CheckResult | None]],
) -> None:
    checks = Checks(EQUAL)
    found = checking(checks, module(), capturing=True)
    assert not checks.asked and found[0] == found[1]
    assert found[0] and found[0].text.startswith("not checked: a CUDA graph")


def test_a_launch_before_it_that_waits_for_it_is_not_waited_for(
    checking: Callable[..., list[CheckResult | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked, "_PATIENCE_S", 0.05)
    checks, launched = Checks(EQUAL), threading.Event()
    text = "not checked: what was launched before it has not ended in 0.05 s."
    assert checking(checks, module(), wait=launched.wait) == [CheckResult(text), None]
    assert not checks.asked
    launched.set()


def test_a_device_that_has_failed_before_checks_nothing(
    checking: Callable[..., list[CheckResult | None]],
) -> None:
    def wait() -> None:
        raise PatchError("the CUDA driver could not finish what was launched: X.")

    checks = Checks(EQUAL)
    text = "not checked: the CUDA driver could not finish what was launched: X."
    assert checking(checks, module(), wait=wait) == [CheckResult(text), None] and not checks.asked


def test_what_the_driver_refuses_is_no_error(
    checking: Callable[..., list[CheckResult | None]],
) -> None:
    checks = Checks(PatchError("the CUDA driver could not copy to the host: X."))
    text = "not checked: the CUDA driver could not copy to the host: X."
    assert checking(checks, module()) == [CheckResult(text), None]


DIFFERS = CheckResult("out differs", refused=True)


class Kernel:
    """A jitted function whose launches are checked, and found wrong."""

    __name__ = "k"
    cache_key = ""
    arg_names: tuple[str, ...] = ()

    def __init__(self, verdict: CheckResult | None = DIFFERS) -> None:
        self.fn = SimpleNamespace(__module__="m", __qualname__="k")
        self.launches = 0
        self.verdict = verdict

    def run(self, *args: object, **kwargs: object) -> str:
        self.launches += 1
        launch = take()
        if launch is not None:
            prof = launch.buffer(launch.plan, (1, 1, 1), 4, 1, launch.selection)
            assert prof is not None
            launch.verdict = self.verdict
        return "launched"


class Prof:
    """A buffer."""

    spec_text = str(spec())
    data = SimpleNamespace(numel=lambda: 4096)


@dataclass
class Session:
    """A session whose buffers a test counts."""

    facts: dict[str, str] = field(default_factory=dict)
    lent: int = 0
    held: int = 0
    alive: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)

    def buffer(self, label: str, **options: object) -> Any:
        self.lent += 1
        made = Prof()
        self.alive.add(made)
        return made

    def discard(self, prof: Any) -> None:
        self.lent -= 1


@pytest.fixture
def stepped_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "install", lambda: None)


@pytest.mark.usefixtures("stepped_in")
def test_a_kernel_that_differs_is_an_error() -> None:
    session, kernel = Session(), Kernel()
    launcher = Launcher(plan(level="machine", check=True), lambda: session)  # type: ignore[arg-type,return-value]
    with pytest.raises(CheckError, match=r"k fails the check: out differs\. It runs plain"):
        launcher.run(kernel, kernel.run, grid=(1,))  # type: ignore[arg-type]
    assert session.lent == 0 and kernel.launches == 1 and not launcher.recorded["k"]


@pytest.mark.usefixtures("stepped_in")
def test_no_launch_holds_its_buffer() -> None:
    """Python's collector need not run until memory of a device is given back."""
    session, kernel = Session(), Kernel(None)
    launcher = Launcher(plan(level="machine"), lambda: session)  # type: ignore[arg-type,return-value]
    gc.disable()
    try:
        launcher.run(kernel, kernel.run, grid=(1,))  # type: ignore[arg-type]
        assert session.lent == 1 and not session.alive
    finally:
        gc.enable()


@pytest.mark.usefixtures("stepped_in")
def test_a_program_goes_on_with_the_plain_results() -> None:
    session, kernel = Session(), Kernel()
    launcher = Everything(plan(level="machine", check=True), lambda: session)  # type: ignore[arg-type,return-value]
    with pytest.warns(IkpWarning, match="fails the check"):
        launcher.run(kernel, kernel.run, grid=(1,))  # type: ignore[arg-type]
    assert kernel.launches == 1  # not again: it has run
    launcher.run(kernel, kernel.run, grid=(1,))  # type: ignore[arg-type]
    assert kernel.launches == 2 and session.lent == 0
    assert sum(launcher.plain.values()) == 2
