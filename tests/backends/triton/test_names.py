"""Region names on their way from a kernel to the host, through compile caches too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triton import knobs

from ikp.backends.triton import TritonBackend
from ikp.backends.triton import _hooks as hooks
from ikp.backends.triton._hooks import names_in_code
from ikp.core.regions import region_id
from ikp.errors import RegionError
from ikp.targets.ptx import STORE_MARK, region_comment
from tests.backends.sass import compile_kernel, spec
from tests.kernels.wrapped import scale

NAMES = [
    "load",
    "a b  c",
    'say "x"',
    "it's",
    "back\\slash \\n",
    "new\nline and\ttab\r",
    "$0 $1 $$ ${x}",
    "{braces} {{twice}} }{",
    "// ikp.end",
    '5 "fake"',
    "%r1, [a]; @p bra;",
    "ранг 測量 🙂",
    "x" * 3000,
]
TYPES = {"x": "*i32", "n": "i32"}


def compiled_ptx(name: str) -> str:
    return compile_kernel(scale, TYPES, spec(), {"BLOCK": 32, "EVEN": True, "NAME": name}).ptx


@pytest.mark.compiled
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_name_comes_through_the_compiler(name: str) -> None:
    ptx = compiled_ptx(name)
    assert names_in_code(ptx) == {region_id(name): name}
    assert all(ord(character) < 128 for character in ptx)
    (mark,) = (line for line in ptx.split("\n") if line.startswith(STORE_MARK))
    assert f"0x{(1 << 29) | (2 << 27) | region_id(name):x}" in ptx
    assert mark == f"{STORE_MARK} {region_comment(region_id(name), name)}"


@given(names=st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1), max_size=5))
def test_marks_read_back_as_written(names: list[str]) -> None:
    lines = [f"{STORE_MARK} {region_comment(i, name)}" for i, name in enumerate(names)]
    text = "\n{\nst.global [a];\n}\n".join(["// begin", *lines, f"{STORE_MARK} run-time region"])
    assert text.isascii()
    assert "$" not in text  # LLVM would read it as an operand
    assert names_in_code(text) == dict(enumerate(names))


def test_two_names_of_one_id_in_a_kernel_are_told() -> None:
    text = f'{STORE_MARK} 5 "a"\n{STORE_MARK} 5 "b"'
    with pytest.raises(RegionError, match="the regions 'a' and 'b' share the id 0x5"):
        names_in_code(text)


SCRIPT = """
import json, sys
from triton import knobs
import ikp.backends.triton.adapter
from ikp.verbs import dsl as names
from ikp.backends.triton import TritonBackend
from tests.backends.sass import source, spec
from tests.kernels.wrapped import scale
from triton.backends.compiler import GPUTarget
import triton

backend = TritonBackend()
made = source(scale, {"x": "*i32", "n": "i32"}, spec(),
              {"BLOCK": 32, "EVEN": True, "NAME": sys.argv[1]})
times = []
knobs.compilation.listener = lambda **facts: times.append(facts["cache_hit"])
kernel = triton.compile(made, target=GPUTarget("cuda", 90, 32))
before = backend.names()
# What Triton does before it loads a kernel onto a GPU.
knobs.runtime.kernel_load_start_hook(None, None, kernel.name, kernel.metadata_group, kernel.hash)
print(json.dumps([times, before, backend.names()]))
"""


@pytest.mark.compiled
def test_names_come_from_the_kept_ptx_on_a_cache_hit() -> None:
    name = "only the cache knows 🙂"
    compiled_ptx(name)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, name],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    hits, before, after = json.loads(done.stdout)
    assert hits == [True]
    assert before == {}
    assert after == {str(region_id(name)): name}


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Pretend that no kernel was loaded before."""
    monkeypatch.setattr(hooks, "_loaded", set())
    hooks._names_in.cache_clear()
    return hooks._loaded


def load(path: Path) -> None:
    group = {"k.ptx": str(path), "k.cubin": "elsewhere", "k.json": "elsewhere"}
    knobs.runtime.kernel_load_start_hook(None, None, "k", group, "hash")


def test_loading_a_kernel_teaches_its_names(loaded: set[Path], tmp_path: Path) -> None:
    backend = TritonBackend()
    path = tmp_path / "k.ptx"
    path.write_text(f"{STORE_MARK} {region_comment(3, 'three')}\n")
    load(path)
    load(path)
    assert hooks.loaded_names() == {3: "three"}
    assert backend.names()[3] == "three"


def test_a_cache_that_was_emptied_gives_no_names(loaded: set[Path], tmp_path: Path) -> None:
    TritonBackend()
    load(tmp_path / "gone.ptx")
    assert hooks.loaded_names() == {}


def test_kernels_that_never_heard_of_ikp_give_no_names(loaded: set[Path], tmp_path: Path) -> None:
    TritonBackend()
    path = tmp_path / "k.ptx"
    path.write_text('ld.global.b32 %r1, [%rd1]; // 5 "five"\n')
    load(path)
    assert hooks.loaded_names() == {}


def test_installing_twice_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    TritonBackend()
    stages, chain = knobs.runtime.add_stages_inspection_hook, knobs.runtime.kernel_load_start_hook
    calls = len(chain.calls)
    TritonBackend()
    assert knobs.runtime.add_stages_inspection_hook is stages
    assert len(chain.calls) == calls
    assert chain.calls.count(hooks._loading) == 1


@pytest.mark.compiled
def test_another_tools_stages_hook_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def other(*args: Any) -> Any:
        seen.append(args)
        return ("key", "hash") if not args else None

    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", other)
    TritonBackend()
    chained = knobs.runtime.add_stages_inspection_hook
    assert chained is not other
    assert chained() == ("key", "hash")
    ptx = compiled_ptx("after another tool")
    assert any(len(args) == 5 for args in seen)
    # Finish stands before the exit, so our pass ran too.
    assert ptx.count("%globaltimer") == 2
