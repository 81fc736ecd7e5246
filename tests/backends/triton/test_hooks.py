"""The passes over a kernel's code: whether they ran, and what happens where they can't."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
import triton
from triton import knobs

from ikp.backends.triton import TritonBackend, stages
from ikp.backends.triton import _hooks as hooks
from ikp.backends.triton import _load_checks as load_checks
from ikp.backends.triton.foreign import TRITON
from ikp.core.segment import Segment, Spec
from ikp.errors import IkpWarning, KernelError
from tests.backends import sass
from tests.backends.gluon import kernels as gluon_kernels
from tests.backends.gluon.compiling import compile_gluon
from tests.backends.sass import Code, compile_kernel, spec
from tests.kernels import called, control, specialised

TYPES = {"out": "*i32", "n": "i32"}
PASSED = "// ikp.init ikp_address ikp_size"
RAW = "// ikp.init %"

pytestmark = pytest.mark.compiled


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Forget what was told and found before; put the hook back; keep odd code from other tests."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", None)
    monkeypatch.setattr(load_checks, "_told", set())
    TRITON.forget()
    yield
    TRITON.forget()


def nested(on: Spec | None) -> Code:
    return compile_kernel(control.nested, TYPES, on)


def load(code: Code) -> None:
    """Do what Triton does before it loads a kernel onto a GPU, from its cache or not."""
    made = code.compiled
    knobs.runtime.kernel_load_start_hook(None, None, made.name, made.metadata_group, made.hash)


def refusal(compile_: Callable[[], Any]) -> str:
    """Return how a compilation fails, in one line."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its cause is what counts
        compile_()
    return " ".join("".join(format_exception(caught.value)).split())


def another_tool(change: Callable[[Any], None]) -> Callable[..., Any]:
    """Return a hook that changes the stages of each compilation."""

    def hook(*args: Any) -> Any:
        if not args:
            return "theirs", "theirs"
        change(args[1])
        return None

    return hook


def test_code_without_the_passes_never_gets_into_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marked = replace(spec(), revision="a_key_of_its_own")
    with monkeypatch.context() as patch:
        patch.setattr(sass, "TritonBackend", lambda: None)  # installs nothing
        patch.setattr(knobs.runtime, "add_stages_inspection_hook", another_tool(lambda _: None))
        said = refusal(lambda: nested(marked))
        assert "without ikp's hook on the compiler, which another tool took away" in said
        plain = compile_kernel(control.nested, TYPES, None)
    hits: list[bool] = []
    monkeypatch.setattr(
        knobs.compilation, "listener", lambda **facts: hits.append(facts["cache_hit"])
    )
    assert PASSED in nested(marked).ptx
    assert PASSED in nested(marked).ptx
    assert hits == [False, True]
    assert "ikp.init" not in plain.ptx


def test_a_buffer_puts_the_hook_around_what_was_set_since(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    backend = TritonBackend()
    seen: list[Any] = []
    knobs.runtime.add_stages_inspection_hook = another_tool(seen.append)
    backend.argument(Segment("k", torch.zeros(4096, dtype=torch.uint8), spec(), "triton", "", 0.0))
    monkeypatch.setattr(sass, "TritonBackend", lambda: None)
    assert PASSED in nested(replace(spec(), revision="around_another")).ptx
    assert len(seen) == 1


def test_so_does_the_buffer_of_a_launch_that_repeats_an_earlier_one() -> None:
    import torch

    backend = TritonBackend()
    memory = [torch.zeros(4096, dtype=torch.uint8) for _ in range(3)]
    first = backend.argument(Segment("k", memory[0], spec(), "triton", "", 0.0))
    assert first is not None
    again = backend.repeated(first)
    ours = knobs.runtime.add_stages_inspection_hook
    assert again(memory[1]) == first._replace(data=memory[1])
    assert knobs.runtime.add_stages_inspection_hook is ours
    knobs.runtime.add_stages_inspection_hook = theirs = another_tool(lambda _: None)
    assert again(memory[2]) == first._replace(data=memory[2])
    assert knobs.runtime.add_stages_inspection_hook is not theirs


def test_a_tool_that_keeps_ikps_hook_inside_gets_the_passes_once() -> None:
    TritonBackend()
    ours = knobs.runtime.add_stages_inspection_hook
    knobs.runtime.add_stages_inspection_hook = partial(ours)
    code = nested(replace(spec(), revision="inside_another"))  # ikp's goes around theirs again
    assert knobs.runtime.add_stages_inspection_hook is not ours
    assert code.ptx.count(PASSED) == 1
    assert code.ptx == nested(replace(spec(), revision="inside_another")).ptx


def renamed(found: Any) -> None:
    """Call the stage of the PTX otherwise, as another version of Triton might."""
    kept = dict(found)
    found.clear()
    found.update({"ptx2" if name == "ptx" else name: stage for name, stage in kept.items()})


@pytest.fixture
def no_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Triton's stages without one that is called "ptx"."""
    knobs.runtime.add_stages_inspection_hook = another_tool(renamed)
    monkeypatch.setattr(knobs.compilation, "always_compile", True)


@pytest.mark.usefixtures("no_ptx")
def test_a_renamed_stage_is_told_once_and_the_kernel_records() -> None:
    nothing = compile_kernel(control.nested, TYPES, None)  # not marked: nothing to tell
    assert "ptx2" in nothing.compiled.asm
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        code, again = nested(spec()), nested(spec())
        load(code)
    assert RAW in code.compiled.asm["ptx2"]
    assert RAW in again.compiled.asm["ptx2"]
    (one,) = told
    said = str(one.message)
    assert f"Triton {triton.__version__}" in said
    assert "has no compiler stage 'ptx' (it has: ttir, ttgir, llir, ptx2, cubin)" in said
    assert "ikp knows Triton 3.6 to 3.9" in said
    assert "only where ikp.finish() is called" in said


@pytest.mark.usefixtures("no_ptx")
@pytest.mark.parametrize(
    ("compile_", "what"),
    [
        (lambda: nested(replace(spec(), totals=True)), "totals (mode='totals')"),
        (lambda: compile_kernel(called.calling, TYPES, spec()), "a function marked noinline"),
        (
            lambda: compile_gluon(gluon_kernels.specialised, TYPES, spec()),
            "warp-specialised partitions",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Triton .* has no compiler stage")
def test_what_would_record_wrongly_without_a_stage_is_refused(
    compile_: Callable[[], Any], what: str
) -> None:
    said = refusal(compile_)
    assert what in said
    assert "has no compiler stage 'ptx'" in said


def test_a_stage_of_another_form_is_told() -> None:
    compilation = hooks.Compilation({})
    found = {"ttgir": str, "ptx": lambda *_: b"ELF", "cubin": str}
    assert stages.hook_on(found, "cuda", compilation) == ""
    assert found["ptx"]("source", {}) == b"ELF"  # no mark, nothing to tell
    compilation.marked = True
    with pytest.warns(IkpWarning, match="returns bytes"):
        assert found["ptx"]("source", {}) == b"ELF"
    compilation.needs.append("totals")
    with pytest.raises(KernelError, match="returns bytes"):
        found["ptx"]("source", {})


def test_code_that_another_tool_kept_from_the_passes_is_told_when_loaded(tmp_path: Path) -> None:
    ptx, ttgir = tmp_path / "k.ptx", tmp_path / "k.ttgir"
    ptx.write_text(f"{RAW}rd1 %r2\n// ikp.spec ikp totals=0 \nret;\n")
    ttgir.write_text("")
    files = {"k.ptx": str(ptx), "k.ttgir": str(ttgir)}
    with pytest.warns(IkpWarning, match="code of kernel k that ikp's passes have not run over"):
        hooks._loading(None, None, "k", files, "hash")
    hooks._loading(None, None, "k", files, "hash")
    ttgir.write_text("ttg.warp_specialize(%0)")
    with pytest.raises(KernelError, match="k has ikp's marks and warp-specialised partitions, but"):
        hooks._loading(None, None, "k", files, "hash")


def specialised_on(capability: int, inside: bool, after: bool) -> Code:
    return compile_kernel(
        specialised.matmul,
        {"a_ptr": "*fp16", "out": "*fp32", "n": "i32"},
        spec(),
        {"BLOCK": 64, "INSIDE": inside, "AFTER": after},
        capability=capability,
    )


def test_ranges_that_the_compiler_drops_are_told_from_the_cache_too() -> None:
    code = specialised_on(90, True, False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        load(code)
        load(code)
    (one,) = told
    assert "the code of kernel matmul lacks ranges, which record nothing: 'load', 'dot' " in str(
        one.message
    )
    assert "gone in Triton's stage 'ttgir'" in str(one.message)
    assert "out and have them put into what the compiler has made: ikp.in" in str(one.message)


@pytest.mark.parametrize(
    "made",
    [
        lambda: specialised_on(100, False, True),
        lambda: compile_kernel(called.calling, TYPES, spec()),
        lambda: nested(spec()),
        lambda: compile_gluon(gluon_kernels.specialised, TYPES, spec()),
    ],
)
def test_ranges_that_are_copied_or_moved_are_not_missed(made: Callable[[], Any]) -> None:
    code = made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(code)
    assert load_checks.regions(
        code.compiled.asm["ttir" if "ttir" in code.compiled.asm else "ttgir"]
    )


def test_a_range_that_keeps_a_divided_loop_from_compiling_is_named() -> None:
    said = refusal(lambda: specialised_on(90, True, True))
    assert "Triton can't compile matmul with ikp's marks in it; without them it can" in said
    assert "and ranges outside of that loop: 'store'. Take these ranges out" in said


def test_marks_are_not_blamed_for_what_fails_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("PassManager::run failed")

    knobs.runtime.add_stages_inspection_hook = another_tool(lambda s: s.update(ttgir=fails))
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    with pytest.raises(RuntimeError, match="PassManager"):
        specialised_on(90, True, True)
