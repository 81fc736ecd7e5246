"""The benchmark of other people's CuTe kernels puts a range around each wait, and no more."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.cute_patch import PatchError, Ranges, patch, waits
from examples import gemm_cute
from ikp.backends.triton._hooks import names_in_code
from tests.backends.cute.compiling import prof
from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING
from tests.examples.test_cute import TENSOR_CORES, compile_gemm
from tests.kernels.stripped import stripped

SOURCE = '''
"""A module."""
from __future__ import annotations
import cutlass.cute as cute

@cute.kernel
def kernel(a, tile):
    """Do it."""
    pipe.consumer_wait(tile)
    helper(a)
    peek = pipe.consumer_try_wait(tile)
    {body}

@cute.jit
def helper(a):
    handle = self.ring.acquire_and_advance()

@cute.jit
def other(a):
    pipe.consumer_wait(a)

@cute.jit
def host(a, tile=3):
    kernel(a, tile).launch(grid=[1, 1, 1])

if __name__ == "__main__":
    host(1)
'''
PATCHED = '''"""A module."""
from __future__ import annotations
import ikp
import cutlass.cute as cute

@cute.kernel
def kernel(a, tile, prof):
    """Do it."""
    ikp.init(prof)
    with ikp.range('pipe.consumer_wait'):
        pipe.consumer_wait(tile)
    helper(a)
    peek = pipe.consumer_try_wait(tile)
    done(a)
    ikp.finish()

@cute.jit
def helper(a):
    with ikp.range('ring.acquire_and_advance'):
        handle = self.ring.acquire_and_advance()

@cute.jit
def other(a):
    pipe.consumer_wait(a)

@cute.jit
def host(a, tile=3, prof=None):
    kernel(a, tile, prof=prof).launch(grid=[1, 1, 1])

def main():
    host(1)'''


def source(body: str = "done(a)") -> str:
    return SOURCE.format(body=body)


def load(text: str, name: str, folder: Path) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_module_is_changed_where_it_waits_and_nowhere_else() -> None:
    assert patch(source(), Ranges.IKP) == PATCHED
    assert waits(PATCHED) == 2


def test_a_return_at_the_end_comes_after_finish() -> None:
    assert "ikp.finish()\n    return" in patch(source("return"), Ranges.IKP)


def test_anchors_alone() -> None:
    text = patch(source(), Ranges.ANCHORS)
    assert waits(text) == 0
    assert text.count("ikp.init(prof)") == text.count("ikp.finish()") == 1


def test_ranges_of_iket() -> None:
    text = patch(source(), Ranges.IKET)
    assert waits(text) == 2
    assert text.count("iket.range_pop()") == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import cutlass.cute as cute", "no function marked @cute.kernel"),
        (source().replace(".launch", ".start"), "no @cute.jit function with"),
        (source("if tile:\n        return"), "returns early"),
        (source("use(pipe.wait(tile))"), "kernel has 2 waits, of which 1 stand inside expressions"),
    ],
)
def test_what_can_not_be_changed_is_refused(text: str, says: str) -> None:
    with pytest.raises(PatchError, match=says):
        patch(text, Ranges.IKP)


@pytest.mark.compiled
def test_a_kernel_with_every_wait_in_a_range(tmp_path: Path) -> None:
    plain = stripped(gemm_cute, tmp_path)
    text = patch(Path(plain.__file__ or "").read_text(), Ranges.IKP)
    assert waits(text) == 5

    def compiled(*buffer: Any) -> Any:
        return compile_gemm(load(text, "gemm_patched", tmp_path), *buffer)

    before, off, recorded = compile_gemm(plain), compiled(None), compiled(prof())
    assert off.words == before.words
    unchanged = (*TENSOR_CORES, *SYNCHRONISING, *LOCAL_MEMORY)
    assert recorded.count(unchanged) == before.count(unchanged)
    assert recorded.registers == before.registers
    assert set(names_in_code(recorded.ptx).values()) == {
        "ring.producer_acquire",
        "ring.producer_tail",
        "ring.consumer_wait",
        "warpgroup.wait_group",
    }
