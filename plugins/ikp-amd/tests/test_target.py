"""AMD GPUs as a target: found by its entry point, loaded for AMD kernels, refused where missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import triton.language as tl
from triton import jit, knobs, runtime

import ikp
import ikp_amd
from gcn.compiling import AmdCode, compile_amd
from gcn.launching import AmdDriver, compiled
from ikp import plugins, registry
from ikp.backends.triton import _load_checks as load_checks
from ikp.backends.triton import gpu_targets
from ikp.core.segment import Spec
from ikp.errors import KernelError, UsageError
from ikp.session import wishes
from ikp_amd import AmdTarget
from tests.backends.sass import spec
from tests.kernels import control, unedited

PROJECT = Path(__file__).parents[1]
TYPES = {"out": "*i32", "n": "i32"}


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take the package away, as far as ikp sees."""
    points = registry._points
    without = {registry.TARGETS: list[object]()}
    monkeypatch.setattr(
        registry, "_points", lambda group: without[group] if group in without else points(group)
    )
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    for each in (registry.triton_target, registry.triton_target_folders):
        each.cache_clear()
    yield
    for each in (registry.triton_target, registry.triton_target_folders):
        each.cache_clear()


@jit
def never_ended(out, n, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "never ended", n)
    tl.store(out, n)


def test_the_installed_package_is_the_one_in_the_source() -> None:
    facts = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata.version(facts["name"]) == facts["version"], "reinstall: make install"
    assert facts["entry-points"][plugins.TARGETS] == {"hip": "ikp_amd:AmdTarget"}
    assert registry.triton_target("hip") is AmdTarget
    assert isinstance(AmdTarget, plugins.TritonTarget)


def test_its_code_is_in_the_compile_caches_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(ikp_amd.__file__).parent
    assert folder in registry.triton_target_folders()

    before = wishes.revision.__wrapped__()
    assert before == wishes.revision()
    (tmp_path / "other.py").write_text("")
    monkeypatch.setattr(registry, "triton_target_folders", lambda: [folder, tmp_path])
    assert wishes.revision.__wrapped__() == before  # an empty file adds nothing
    (tmp_path / "other.py").write_text("x = 1")
    assert wishes.revision.__wrapped__() != before


def test_its_options_are_those_of_a_session() -> None:
    made = wishes.Wishes(target_options={"sched_barriers": False}).target_options
    assert Spec.parse(str(Spec(target_options=made))).option("sched_barriers", True) is False
    assert Spec().option("sched_barriers", True) is True
    with pytest.raises(UsageError, match=r"has 'scheduled', .*\(there are: sched_barriers\)"):
        ikp.profile(target_options={"scheduled": False})
    with pytest.raises(UsageError, match="give a dict from an option's name to a bool"):
        ikp.profile(target_options={"sched_barriers": 1})  # type: ignore[dict-item]


def test_without_the_package_its_options_are_unknown(missing: None) -> None:
    with pytest.raises(UsageError, match=r"has 'sched_barriers', .*\(there are: none\)"):
        ikp.profile(target_options={"sched_barriers": False})


@pytest.mark.compiled
def test_without_the_package_a_kernel_that_records_is_refused_with_what_to_install(
    missing: None,
) -> None:
    with pytest.raises(
        Exception, match=r"backend 'hip'.*Do: install ikp-amd; or give the kernel N"
    ):
        compile_amd(control.nested, TYPES, spec())
    off = compile_amd(control.nested, TYPES, None).text
    words = re.sub(r'"[^"]*"|;.*', "", off)  # without paths, which may hold any name
    assert "s_endpgm" in words and "ikp" not in words


@pytest.mark.compiled
def test_without_the_package_a_kernel_with_marks_in_its_source_is_refused(
    missing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(runtime.driver, "_active", AmdDriver())
    numbers = torch.zeros(64, dtype=torch.int32)
    kernel = unedited.made_in_a_function(11)
    with pytest.raises(Exception, match=r"Do: install ikp-amd; or give"):
        compiled(kernel, numbers, 4, marks={"detail": "loops"})


def test_a_package_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AmdTarget, "interface", 99)
    for each in (registry.triton_target, registry.triton_target_folders):
        each.cache_clear()
    with pytest.raises(KernelError, match=r"does not load: .*from ikp-amd, was written for inter"):
        gpu_targets.target("hip")
    with pytest.raises(KernelError, match=r"none registers 'xpu' .* install a package that has"):
        gpu_targets.target("xpu")


LOADED = """
import sys
from triton import knobs
import ikp
from gcn.compiling import compile_amd
from tests.backends.sass import compile_kernel, spec
from tests.kernels import control

types = {"out": "*i32", "n": "i32"}
with ikp.profile(device="cpu"):
    made = compile_kernel(control.nested, types, spec(), capability=90).compiled
    knobs.runtime.kernel_load_start_hook(None, None, made.name, made.metadata_group, made.hash)
print("ikp_amd" in sys.modules)
compile_amd(control.nested, types, spec())
print("ikp_amd" in sys.modules)
"""


@pytest.mark.compiled
def test_it_is_loaded_for_amd_alone() -> None:
    path = [*sys.path]
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{LOADED}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["False", "True"]


def loaded(code: AmdCode) -> None:
    """Do what Triton does before it loads a kernel onto a GPU, from its cache or not."""
    made = code.compiled
    knobs.runtime.kernel_load_start_hook(None, None, made.name, made.metadata_group, made.hash)


@pytest.mark.compiled
def test_ranges_that_are_copied_or_moved_are_not_missed() -> None:
    code = compile_amd(control.nested, TYPES, spec(), num_warps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded(code)
    assert load_checks.regions(code.compiled.asm["ttir"])


@pytest.mark.compiled
def test_a_start_without_an_end_is_reported() -> None:
    code = compile_amd(never_ended, TYPES, spec())
    (text,) = load_checks.unclosed(str(code.compiled.asm["ttir"]))
    assert "the range 'never ended' is opened at" in text
