"""Kernels that torch.compile generated, launched by Inductor's own runtime."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import ikp
from ikp.backends.triton.unedited import _inductor as inductor
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited.everything import Everything
from ikp.unedited.plan import plan
from tests.kernels import generated

pytestmark = pytest.mark.interp  # the kernel that Inductor would launch runs in the interpreter


@pytest.fixture
def heuristics() -> Any:
    return pytest.importorskip("torch._inductor.runtime.triton_heuristics")


def test_a_launch_of_inductor_runs_the_marked_kernel(
    heuristics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    x, y = torch.arange(80.0), torch.zeros(80)
    kernel = generated.triton_poi_fused_add_0
    monkeypatch.setattr(kernel, "constexprs", [3], raising=False)  # as a compiled function has it
    plain: list[Any] = []
    monkeypatch.setattr(
        heuristics.CachingAutotuner, "run", lambda _, *args, **__: plain.append((*args, 0))
    )
    with ikp.profile() as prof:
        step_out = inductor.step_in(heuristics, Launcher(plan("ops"), lambda: prof))
        autotuner = generated.autotuner(heuristics.CachingAutotuner)
        autotuner.run(x, y, 80, stream=0)
        autotuner.run(x, y, 80, stream=0, benchmark_run=True)
        step_out()
        autotuner.run(x, y, 80, stream=0)
    assert torch.equal(y, x + 1)
    assert len(plain) == 2  # the trial, and the launch after stepping out
    (launch,) = prof.trace.launches
    assert launch.label == "triton_poi_fused_add_0"
    assert launch.grid == (3, 1, 1)
    names = {region.name.partition(" @")[0] for region in prof.trace.regions}
    assert names == {"triton_poi_fused_add_0", "tl.load", "tl.store"}


@pytest.mark.parametrize("step", ["special", "chosen", "over"])
def test_what_fails_before_a_launch_has_the_program_launch_plain(
    heuristics: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Any:
        raise AttributeError("of ikp's")

    said: list[str] = []
    lose = lambda _, why: said.append(why)  # noqa: E731
    torch: Any = SimpleNamespace(has=inductor.TORCH.has, fits=lambda *_: True, lose=lose)
    monkeypatch.setattr(inductor, "TORCH", torch)
    monkeypatch.setattr(generated.triton_poi_fused_add_0, "constexprs", [3], raising=False)
    monkeypatch.setattr(heuristics.CachingAutotuner, "run", lambda *_, **__: "plain")
    monkeypatch.setattr(Everything, step, fails)
    with ikp.profile() as prof:
        launcher = Everything(plan("ops"), lambda: prof, range(0))
        step_out = inductor.step_in(heuristics, launcher)
        autotuner = generated.autotuner(heuristics.CachingAutotuner)
        assert autotuner.run(1, 2, 80, stream=0) == "plain"
        step_out()
    assert len(said) == 1 and "of ikp's" in said[0]


def test_a_function_that_a_worker_dropped_is_loaded_anew(heuristics: Any) -> None:
    autotuner = generated.autotuner(heuristics.CachingAutotuner)
    kept = autotuner.fn
    autotuner.fn = SimpleNamespace(fn=None)
    assert inductor._function(autotuner) is None
    autotuner._reload_kernel = partial(SimpleNamespace, fn=kept)
    assert inductor._function(autotuner) is kept


def test_constants_are_named_by_themselves_their_index_or_path() -> None:
    names = ["a", "b"]
    assert [inductor._name(key, names) for key in ("b", 1, (1,))] == ["b", "b", "b"]
