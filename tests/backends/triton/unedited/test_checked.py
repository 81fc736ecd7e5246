"""What of a launch's arguments is memory that ``check`` compares; and a launch that differs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.backends import checked
from ikp.backends.patched import Launch, take
from ikp.backends.triton.unedited import _machine_code as machine_code
from ikp.backends.triton.unedited import _pointed_to as pointed_to
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited.everything import Everything
from ikp.core.abi import Language
from ikp.errors import CheckError, IkpWarning, PatchError
from ikp.machine import cuda
from ikp.machine.patch import Patch
from ikp.machine.rehearsal import Buffer, Verdict
from ikp.unedited.plan import plan
from tests.backends.sass import spec

pytestmark = pytest.mark.any_pins


@dataclass
class Tensor:
    """A tensor of torch's, as far as a launcher sees it."""

    address: int
    nbytes: int
    is_cuda: bool = True

    def untyped_storage(self) -> Any:
        tensor = self

        class Storage:
            def data_ptr(self) -> int:
                return tensor.address

            def nbytes(self) -> int:
                return tensor.nbytes

        return Storage()


@dataclass
class Descriptor:
    base: Tensor
    block_shape: tuple[int, ...] = (8, 8)


@dataclass
class Pointer:
    address: int

    def data_ptr(self) -> int:
        return self.address


LAUNCHER = ((0, 1, 2), None, None, None)
"""What stands before a kernel's arguments: metadata and hooks."""


def test_of_a_tensor_it_is_the_storage() -> None:
    values = (*LAUNCHER, Tensor(4096, 64), 3, 1.5, Tensor(0, 8, is_cuda=False), Tensor(8192, 32))
    assert pointed_to.buffers(values, ["a", "n", "f", "host", "out"]) == [
        Buffer("a", 4096, 64),
        Buffer("out", 8192, 32),
    ]


def test_views_of_one_storage_are_one_buffer() -> None:
    values = (*LAUNCHER, Tensor(4096, 64), Tensor(4096, 64))
    assert pointed_to.buffers(values, ["x", "y"]) == [Buffer("x and y", 4096, 64)]


def test_descriptors_and_tuples_hold_tensors() -> None:
    values = (*LAUNCHER, Descriptor(Tensor(4096, 64)), (Tensor(8192, 8), 3))
    found = pointed_to.buffers(values, ["desc", "pair"])
    assert [(each.name, each.address) for each in found] == [("desc", 4096), ("pair[0]", 8192)]


def test_of_another_pointer_it_is_the_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocation(pointer: int) -> tuple[int, int]:
        if pointer < 4096:
            raise PatchError("CUDA_ERROR_INVALID_VALUE")
        return 4096, 1 << 20

    monkeypatch.setattr(cuda, "allocation", allocation)
    values = (*LAUNCHER, Pointer(5000), Pointer(16))
    assert pointed_to.buffers(values, ["p", "nowhere"]) == [Buffer("p", 4096, 1 << 20)]


def test_arguments_without_names_are_numbered() -> None:
    assert pointed_to.buffers((Tensor(4096, 8),), ()) == [Buffer("argument 0", 4096, 8)]


PLAIN, RECORDED = 7, 8


@dataclass
class Gpu:
    """A device with one buffer, to which kernels add 1: with records, ``off`` more."""

    off: int = 0
    out: int = 10
    launched: list[int] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)

    def launch(self, x: int, y: int, z: int, stream: int, function: int, *rest: object) -> str:
        self.launched.append(function)
        self.out += 1 + self.off * (function == RECORDED)
        return "launched"

    def allocate(self, nbytes: int) -> int:
        return 100 + len(self.copies)

    def free(self, address: int) -> None:
        del self.copies[address]

    def copy(self, target: int, source: int, nbytes: int) -> None:
        if target == OUT:
            self.out = self.copies[source]
        else:
            self.copies[target] = self.out

    def read(self, address: int, nbytes: int) -> bytes:
        return (self.out if address == OUT else self.copies[address]).to_bytes(nbytes, "little")

    def wait(self) -> None:
        """Have nothing under way."""


OUT = 4096
KERNEL = SimpleNamespace(
    name="k",
    metadata=SimpleNamespace(num_ctas=1),
    src=SimpleNamespace(fn=SimpleNamespace(arg_names=["out"])),
)


@pytest.fixture
def launching(monkeypatch: pytest.MonkeyPatch):
    """Return what launches a kernel on a device, with records, to be checked."""
    plain = Patch(b"", ("k",), 4, (32, 32), told=("one range",), kept="/x/k.cubin")

    def launch(gpu: Gpu, *, capturing: bool = False) -> Launch:
        made = SimpleNamespace(patch=plain, function=RECORDED, checked=False, point=lambda *_: None)
        monkeypatch.setattr(machine_code, "modules", SimpleNamespace(get=lambda *_: made))
        monkeypatch.setattr(machine_code, "apart", lambda _: nullcontext())
        monkeypatch.setattr(checked, "DeviceMemory", lambda: gpu)
        monkeypatch.setattr(cuda, "like", lambda *_, **__: None)
        monkeypatch.setattr(cuda, "capturing", lambda _: capturing)
        meant = Launch(plan(level="machine", check=True), Language.TRITON, lambda *_: "a buffer")
        for _ in range(2):
            rest = (*LAUNCHER, Tensor(OUT, 16))
            machine_code._run(KERNEL, gpu.launch, meant, 1, 1, 1, 0, PLAIN, *rest)
        return meant

    return launch


def test_the_first_launch_runs_three_times_and_the_next_once(launching) -> None:
    gpu = Gpu()
    launch = launching(gpu)
    assert gpu.launched == [PLAIN, PLAIN, RECORDED, RECORDED]
    assert launch.verdict and launch.verdict.text == "1 buffer, 16 bytes, equal bit for bit"
    assert gpu.out == 12  # as after two launches
    assert gpu.copies == {}


def test_in_a_graph_that_is_captured_nothing_is_checked(launching) -> None:
    gpu = Gpu()
    launch = launching(gpu, capturing=True)
    assert gpu.launched == [RECORDED, RECORDED]
    assert launch.verdict and launch.verdict.text.startswith("not checked: a CUDA graph")


def test_a_difference_leaves_what_the_plain_kernel_wrote(launching) -> None:
    gpu = Gpu(off=5)
    launch = launching(gpu)
    assert launch.verdict and launch.verdict.differs and "out differs" in launch.verdict.text
    assert gpu.out == 11 + 6  # the second launch is not checked, and is as it is


class Kernel:
    """A jitted function whose launches are checked, and found wrong."""

    __name__ = "k"
    cache_key = ""
    arg_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.fn = SimpleNamespace(__module__="m", __qualname__="k")
        self.launches = 0

    def run(self, *args: object, **kwargs: object) -> str:
        self.launches += 1
        launch = take()
        if launch is not None:
            prof = launch.buffer((1, 1, 1), 4, 1, launch.selection)
            assert prof is not None
            launch.verdict = Verdict("out differs", differs=True)
        return "launched"


@dataclass
class Session:
    """A session whose buffers a test counts."""

    facts: dict[str, str] = field(default_factory=dict)
    lent: int = 0
    held: int = 0

    def buffer(self, label: str, **options: object) -> Any:
        self.lent += 1
        data = SimpleNamespace(numel=lambda: 4096)
        return SimpleNamespace(spec_text=str(spec()), data=data)

    def discard(self, prof: Any) -> None:
        self.lent -= 1


@pytest.fixture
def stepped_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "install", lambda: None)


@pytest.mark.usefixtures("stepped_in")
def test_a_kernel_that_differs_is_an_error() -> None:
    session, kernel = Session(), Kernel()
    launcher = Launcher(plan(level="machine", check=True), lambda: session)  # type: ignore[arg-type,return-value]
    with pytest.raises(CheckError, match=r"k with records computes something else.*out differs"):
        launcher.run(kernel, kernel.run, grid=(1,))  # type: ignore[arg-type]
    assert session.lent == 0 and kernel.launches == 1 and not launcher.recorded["k"]


@pytest.mark.usefixtures("stepped_in")
def test_a_program_goes_on_with_the_plain_results() -> None:
    session, kernel = Session(), Kernel()
    launcher = Everything(plan(level="machine", check=True), lambda: session)  # type: ignore[arg-type,return-value]
    with pytest.warns(IkpWarning, match="computes something else"):
        launcher.run(kernel, kernel.run, grid=(1,))  # type: ignore[arg-type]
    assert kernel.launches == 1  # not again: it has run
    launcher.run(kernel, kernel.run, grid=(1,))  # type: ignore[arg-type]
    assert kernel.launches == 2 and session.lent == 0
    assert sum(launcher.plain.values()) == 2
