"""A launch with level='ptx': the marked kernel goes in the plain one's place, and all say so."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import triton
import triton.language as tl
from triton import knobs

import ikp
from ikp.backends.loaded import Modules
from ikp.backends.triton.unedited import _machine_code as machine_code
from ikp.core.segment import Selection
from ikp.errors import KernelError
from ikp.machine import cuda
from ikp.machine.cubin import Cubin
from ikp.machine.selecting import selection_words
from ikp.machine.sequences import CELL
from ikp.unedited.plan import plan
from tests.backends.triton.test_foreign import Gpu, arguments

pytestmark = pytest.mark.compiled

PLAIN, MARKED = 1, 2
WARPS = 4


@triton.jit
def counted(out, n):
    for k in range(n):
        tl.store(out + k, k)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return which functions are launched, and the cubins that are loaded, on a GPU of air."""
    seen: list[Any] = []

    class Here(Gpu):
        def load_binary(self, name: str, *_: Any) -> tuple[Any, ...]:
            return object(), PLAIN, 32, 0, 1024

        def launcher_cls(self, source: Any, metadata: Any) -> Any:
            return lambda x, y, z, stream, function, *_: seen.append(function)

    def load(cubin: bytes, name: str) -> tuple[int, int]:
        seen.append(cubin)
        return 7, MARKED

    monkeypatch.setattr(triton.runtime.driver, "_active", Here())
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    monkeypatch.setattr(machine_code, "modules", Modules())
    monkeypatch.setattr(cuda, "load", load)
    for name, value in (("capturing", False), ("context", 0), ("address_of", 64)):
        monkeypatch.setattr(cuda, name, lambda *_, value=value: value)
    for name in ("like", "write"):
        monkeypatch.setattr(cuda, name, lambda *_: None)
    counted.device_caches.clear()
    return seen


def test_the_marked_kernel_is_launched_and_it_is_told(launched: list[Any]) -> None:
    marked = ikp.instrument(counted, level="ptx", detail="ops")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with ikp.profile() as prof:
            marked[(2,)](*arguments())
            marked[(2,)](*arguments())
    assert sum("never run on a GPU" in str(each.message) for each in told) == 1
    cubin, *functions = launched
    assert functions == [MARKED, MARKED]
    assert CELL in Cubin.read(cubin).elf.symbol_names()
    assert prof.trace.provenance["marks in counted"] == "level=ptx detail=ops"
    assert prof.trace.provenance["machine code of counted"].endswith("counted.cubin")
    counted[(2,)](*arguments())
    assert launched[-1] == PLAIN


@pytest.mark.parametrize("level", ["machine", "ptx"])
@pytest.mark.filterwarnings("ignore:.*never run on a GPU", "ignore:nothing was recorded")
def test_all_choices_have_one_patched_kernel_beside_that_without(
    level: str, launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, ...]] = []
    monkeypatch.setattr(cuda, "write", lambda cell, words, stream: written.append(words))
    choices: list[dict[str, Any]] = [
        {},
        {"warps": iter([1])},
        {"blocks": range(1, 9, 4)},
        {"warps": None},
    ]
    with ikp.profile():
        for each in choices:
            ikp.instrument(counted, level=level, **each)[(6,)](*arguments())
    cubins = [each for each in launched if isinstance(each, bytes)]
    assert [each for each in launched if each not in cubins] == [MARKED] * 4
    assert len({*cubins}) == len(cubins) == 2
    every, some, few, again = (words[1] >> 32 for words in written)
    assert (every, some, few, again) == (6 * WARPS, 6, 2 * WARPS, 6 * WARPS)
    assert [len(words) for words in written] == [2, 9, 9, 2]
    assert written[1][2:] == selection_words(Selection(2), WARPS)


def test_the_interpreter_makes_no_ptx() -> None:
    from ikp.backends.triton.unedited._launching import Launcher

    class Interpreted:
        __name__ = "k"

    launcher = Launcher(plan(level="ptx"), lambda: None)
    with pytest.raises(KernelError, match="level='ptx' puts records into what a compiler has made"):
        launcher.launch(launcher.plan, None, Interpreted(), print, (), {})
