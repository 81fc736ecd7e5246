"""Where a launch is to record is passed in the place of scratch memory, of which it has none."""

from __future__ import annotations

import json
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.backends.nvidia.driver import CudaLauncher

import ikp
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.backends.triton.unedited._special import hook_the_compiler
from ikp.driver import cuda_memory
from ikp.errors import PatchError
from ikp.probes.code.entry_code import CELL
from ikp.probing import Feature, Foreign, Private
from ikp.sass.cubins.cubin import Cubin
from tests.backends.renaming import named, renamed, told_once
from tests.backends.triton.test_foreign import Gpu, arguments
from tests.backends.triton.unedited.on_air import MARKED, on_air

pytestmark = pytest.mark.compiled

WORDS = (0x7F42_1000_0040, 5 << 32 | 3)


@triton.jit
def counted(out, n):
    for k in range(n):
        tl.store(out + k, k)


def launcher(seen: list[tuple[Any, ...]], **sizes: int) -> Any:
    """Return one of Triton's own, of a kernel with so much scratch memory, and no GPU behind it."""
    made = CudaLauncher.__new__(CudaLauncher)
    made.launch = lambda *args: seen.append(args)
    made.num_ctas, made.launch_cooperative_grid, made.launch_pdl = 1, 0, 0
    made.gsan_enabled, made.arg_annotations, made.kernel_signature = False, (), ()
    for name in ("global_scratch", "profile_scratch"):
        setattr(made, f"{name}_size", sizes.get(name, 0))
        setattr(made, f"{name}_align", 1)
    return made


def passing(plain: Any, words: tuple[int, int]) -> foreign.Passing:
    made = foreign.Passing(plain)
    made.words = words
    return made


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(triton.runtime.driver, "_active", made)
    return made


def test_two_words_are_passed_where_nothing_was() -> None:
    seen: list[tuple[Any, ...]] = []
    plain, given = launcher(seen), (2, 3, 4, 9, MARKED, (), (), None, None, 11, "x")
    assert foreign.has_no_scratch(plain)
    plain(*given)
    made = passing(plain, WORDS)
    made(*given)
    made.words = (0, 0)
    made(*given)
    plain(*given)  # and nothing of it is left
    before, told, off, after = seen
    changed = [at for at, (a, b) in enumerate(zip(before, told, strict=True)) if a != b]
    assert changed == [changed[0], changed[0] + 1] and [before[at] for at in changed] == [None] * 2
    assert tuple(told[at] for at in changed) == WORDS and before == after
    assert [off[at] for at in changed] == [0, 0]


@pytest.mark.parametrize("name", ["global_scratch", "profile_scratch"])
def test_a_kernel_with_scratch_memory_is_told_otherwise(name: str) -> None:
    assert not foreign.has_no_scratch(launcher([], **{name: 64}))
    assert not foreign.has_no_scratch(lambda *_: None)


def test_something_else_in_that_place_is_never_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = launcher([], profile_scratch=64)
    profilers = triton.runtime._allocation._profile_allocator
    monkeypatch.setattr(profilers, "_allocator", lambda *_: 77)
    with pytest.raises(PatchError, match="something else where a profiler's memory"):
        passing(made, WORDS)(1, 1, 1, 0, MARKED, (), (), None, None)


@pytest.mark.parametrize(("package", "feature", "name"), named(foreign.TRITON, foreign.SCRATCH))
def test_where_names_are_gone_it_is_told_once(
    package: Foreign, feature: Feature, name: Private
) -> None:
    with renamed(package, name), told_once(package, feature, name):
        assert not foreign.has_no_scratch(launcher([]))
        assert not foreign.has_no_scratch(launcher([]))


@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_the_first_launch_of_a_process_is_compiled_and_patched_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[bytes] = []
    on_air(monkeypatch, counted, lambda: launcher([]), loaded.append)
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    hook_the_compiler.cache_clear()
    keys: list[object] = []
    compiles = triton.JITFunction._do_compile

    def counting(self: Any, key: object, *args: Any, **kwargs: Any) -> Any:
        keys.append(key)
        return compiles(self, key, *args, **kwargs)

    monkeypatch.setattr(triton.JITFunction, "_do_compile", counting)
    marked = ikp.instrument(counted, level="machine")
    with ikp.profile():
        marked[(6,)](*arguments())
        marked[(6,)](*arguments())
    assert len(keys) == len(loaded) == 1


@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_a_recorded_launch_passes_where_it_records(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    loaded: list[bytes] = []
    on_air(monkeypatch, counted, lambda: launcher(seen), loaded.append)
    marked = ikp.instrument(counted, level="machine")
    with ikp.profile():
        marked[(6,)](*arguments())
        marked[(6,)](*arguments())
    cubin = loaded[0]  # of each specialisation one
    assert CELL not in Cubin.read(cubin).elf.symbol_names()
    words = [[each for each in args if each.__class__ is int and each >> 20] for args in seen]
    assert [len(each) for each in words] == [2, 2]
    assert words[0][0] != words[1][0] and {each[1] >> 32 for each in words} == {6 * 4}


@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_each_session_has_the_arguments_of_its_own_first_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel is the same one, and so may an address be, with memory of another kind behind."""
    whose = {"now": "host"}

    def freed_at_once() -> Any:
        made = launcher([])
        made.launch = lambda *_: whose.update(now="another GPU")
        return made

    on_air(monkeypatch, counted, freed_at_once, lambda _: None)
    monkeypatch.setattr(
        *(cuda_memory, "far_memory", lambda at: (whose["now"], at, 64) if whose["now"] else None)
    )
    marked, out = ikp.instrument(counted, level="machine"), arguments()[0]
    for memory, numbers in (("host", (5, 6)), ("", (7, 8))):
        whose["now"] = memory
        with ikp.profile() as prof:
            for number in numbers:
                marked[(6,)](out, number)
        facts = prof.facts
        first = bytes.fromhex(json.loads(facts["parameters of counted"])["8"])
        assert int.from_bytes(first, "little") == numbers[0]
        said = json.loads(facts["memory of counted"])
        assert said == ({"0": [memory, out.data_ptr(), 64]} if memory else {})
