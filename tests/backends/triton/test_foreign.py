"""Programs whose Triton has other names than ``ikp`` knows: they run plain, and are told once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from triton import knobs

import ikp
from ikp.backends.triton import TritonBackend
from ikp.backends.triton.foreign import (
    AUTOTUNING,
    INTERPRET,
    INTERPRETER,
    LOADED,
    READS_BACK,
    STAGES,
    TRITON,
    VERBS,
)
from ikp.backends.triton.unedited import _foreign as launches
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited.everything import Everything, stepping_in
from ikp.core.segment import Segment
from ikp.probing import Feature, Foreign, Private
from ikp.unedited.plan import BY_HAND, Plan, plan
from tests.backends.renaming import named, packages, renamed, told_once
from tests.backends.sass import spec
from tests.backends.triton.unedited.compiling import FakeDriver


@triton.jit
def by_hand(out, n, prof):
    ctx = ikp.init(prof)
    for k in range(n):
        ctx = ikp.start(ctx, "in order", k)
        with ikp.range("in a block"):
            tl.store(out + k, k)
        ctx = ikp.end(ctx, "in order")
    token = ikp.start_async(ctx, "across")
    ctx = ikp.end_async(ctx, token)
    ikp.finish(ctx)


@triton.jit
def unmarked(out, n):
    for k in range(n):
        tl.store(out + k, k)


class Gpu(FakeDriver):
    """A GPU on which launches do nothing, and are counted."""

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.utils = self

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 1 << 20}

    def load_binary(self, name: str, *_: Any) -> tuple[Any, ...]:
        return None, name, 32, 0, 1024  # no module: nothing has to be unloaded, ever

    def unload_module(self, module: Any) -> None:
        """Keep it."""

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        return lambda *_: self.launched.append(metadata.name)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(triton.runtime.driver, "_active", made)
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    by_hand.device_caches.clear()
    unmarked.device_caches.clear()
    return made


def handed_out() -> Any:
    """Return what ``prof.buffer`` would, were the GPU there."""
    import torch

    data = torch.zeros(4096, dtype=torch.uint8)
    return TritonBackend().argument(Segment("k", data, spec(), "triton", "a GPU", 0.0))


def launched(kernel: Any, *args: Any) -> str:
    """Launch a kernel; return its PTX without what only says where it comes from."""
    return str(kernel[(1,)](*arguments(), *args).asm["ptx"])


def arguments() -> tuple[Any, int]:
    """Return what both kernels take."""
    import torch

    return torch.zeros(64, dtype=torch.int32), 64


PASSED = "// ikp.init ikp_address ikp_size"


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("package", "feature", "name"), named(TRITON, STAGES, LOADED, INTERPRET, VERBS, AUTOTUNING)
)
def test_a_kernel_marked_by_hand(
    gpu: Gpu, package: Foreign, feature: Feature, name: Private, monkeypatch: pytest.MonkeyPatch
) -> None:
    if feature is STAGES:  # where the hook is unknown, nobody has set it
        monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", None)
    with renamed(package, name), told_once(package, feature, name):
        ptx = launched(by_hand, handed_out())
        launched(by_hand, handed_out())
    assert gpu.launched == ["by_hand", "by_hand"]
    if feature is VERBS:
        assert "ikp." not in ptx
    else:
        assert (PASSED in ptx) == (feature is not STAGES)
        assert "in a block" in ptx


@pytest.mark.compiled
@pytest.mark.parametrize(("package", "feature", "name"), named(launches.TRITON, launches.COMPILED))
def test_a_program_that_ikp_runs(
    gpu: Gpu, package: Foreign, feature: Feature, name: Private
) -> None:
    ran = Everything(plan("ops"), ikp.profile().__enter__)
    with renamed(package, name), told_once(package, feature, name), stepping_in(ran):
        assert "ikp." not in launched(unmarked)
        launched(unmarked)
    assert gpu.launched == ["unmarked", "unmarked"]
    with renamed(package, name), told_once(package, feature, name):
        assert ikp.instrument(unmarked) is unmarked


@pytest.mark.compiled
@pytest.mark.parametrize(("package", "feature", "name"), named(launches.TRITON, launches.LAUNCHES))
def test_records_in_machine_code(
    gpu: Gpu, package: Foreign, feature: Feature, name: Private
) -> None:
    with ikp.profile() as prof:
        ran = Everything(plan(level="machine"), lambda: prof)
        with renamed(package, name), told_once(package, feature, name), stepping_in(ran):
            assert "ikp." not in launched(unmarked)
            launched(unmarked)
    assert gpu.launched == ["unmarked", "unmarked"]
    assert not prof.trace.launches


@pytest.mark.compiled
@pytest.mark.parametrize(("package", "feature", "name"), named(launches.TRITON, launches.ASSEMBLES))
def test_records_in_ptx(
    gpu: Gpu,
    package: Foreign,
    feature: Feature,
    name: Private,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compiling takes some of these names, too: they are gone once the kernel is there."""
    unmarked[(1,)](*arguments())
    monkeypatch.setattr(knobs.compilation, "always_compile", False)
    with ikp.profile() as prof:
        ran = Everything(plan(level="ptx"), lambda: prof)
        with renamed(package, name), told_once(package, feature, name), stepping_in(ran):
            unmarked[(1,)](*arguments())
            unmarked[(1,)](*arguments())
    assert gpu.launched == ["unmarked"] * 3
    assert not prof.trace.launches


@pytest.mark.compiled
@pytest.mark.parametrize(("package", "feature", "name"), named(TRITON, READS_BACK))
def test_records_by_hand(
    gpu: Gpu, package: Foreign, feature: Feature, name: Private, tmp_path: Path
) -> None:
    by_hand = Plan(level=BY_HAND, ttgir=str(tmp_path / "k.ttgir"))
    with ikp.profile() as prof:
        ran = Everything(by_hand, lambda: prof)
        with renamed(package, name), told_once(package, feature, name), stepping_in(ran):
            assert "ikp." not in launched(unmarked)
    assert gpu.launched == ["unmarked"]


@pytest.mark.interp
@pytest.mark.parametrize(("package", "feature", "name"), named(TRITON, INTERPRETER, INTERPRET))
def test_an_interpreted_kernel_marked_by_hand(
    package: Foreign, feature: Feature, name: Private
) -> None:
    import torch

    out = torch.zeros(8, dtype=torch.int32)
    with renamed(package, name), told_once(package, feature, name), ikp.profile() as prof:
        by_hand[(1,)](out, 8, prof.buffer("k", size=4096))
        assert prof.trace is not None
    assert out.tolist() == list(range(8))
    assert len(prof.trace.launches) == (feature is INTERPRET)


@pytest.mark.interp
@pytest.mark.parametrize(
    ("package", "feature", "name"), named(launches.TRITON, launches.INTERPRETED)
)
def test_an_interpreted_program_that_ikp_runs(
    package: Foreign, feature: Feature, name: Private
) -> None:
    import torch

    out = torch.zeros(8, dtype=torch.int32)
    with ikp.profile() as prof:
        ran = Everything(plan("ops"), lambda: prof)
        with renamed(package, name), told_once(package, feature, name), stepping_in(ran):
            unmarked[(1,)](out, 8)
    assert out.tolist() == list(range(8))
    assert not prof.trace.launches


@pytest.mark.interp
@pytest.mark.parametrize(("package", "feature", "name"), named(launches.TRITON, launches.TRIALS))
def test_an_autotuner_that_ikp_runs(package: Foreign, feature: Feature, name: Private) -> None:
    import torch

    out = torch.zeros(8, dtype=torch.int32)
    tuned = triton.autotune([triton.Config({})], key=[])(unmarked)
    with ikp.profile() as prof:
        ran = Everything(plan("ops"), lambda: prof)
        with renamed(package, name), told_once(package, feature, name), stepping_in(ran):
            tuned[(1,)](out, 8)
    assert out.tolist() == list(range(8))
    assert len(prof.trace.launches) == 1


@pytest.mark.interp
@pytest.mark.parametrize(("package", "feature", "name"), named(launches.TORCH, launches.GENERATED))
def test_a_kernel_of_torch_compile(package: Foreign, feature: Feature, name: Private) -> None:
    heuristics = pytest.importorskip(launches.HEURISTICS)
    from ikp.backends.triton.unedited import _inductor as inductor
    from tests.kernels import generated

    ran: list[Any] = []
    with pytest.MonkeyPatch.context() as patch, ikp.profile() as prof:
        patch.setattr(heuristics.CachingAutotuner, "run", lambda *args, **_: ran.append(args))
        with renamed(package, name), told_once(package, feature, name):
            step_out = inductor.step_in(heuristics, Launcher(plan("ops"), lambda: prof))
            autotuner = generated.autotuner(heuristics.CachingAutotuner)
            autotuner.run(1, 2, 80, stream=0)
            autotuner.run(1, 2, 80, stream=0)
            step_out()
    assert [args[1:] for args in ran] == [(1, 2, 80)] * 2
    assert not prof.trace.launches


def test_every_name_is_taken_away_by_a_test() -> None:
    tested = {STAGES, LOADED, INTERPRET, VERBS, READS_BACK, INTERPRETER, AUTOTUNING}
    tested |= {launches.COMPILED, launches.INTERPRETED, launches.TRIALS, launches.GENERATED}
    tested |= {launches.LAUNCHES, launches.ASSEMBLES, launches.SCRATCH, launches.COMPILES}
    pytest.importorskip("cutlass")
    from ikp.backends.cute._foreign import CUTE  # in tests/backends/cute

    tested |= set(CUTE.features)
    assert {each for package in packages() for each in package.features} == tested
