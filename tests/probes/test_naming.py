"""What places are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from ikp.probes.points.naming import called, original, title, variable, waited
from ikp.sass.disassembly.listing import Line

pytestmark = pytest.mark.any_pins

SOURCE = """\
@triton.jit
def helper(p):
    b_g = tl.load(p)
    return b_g

def kernel(x, y):
    b_g = tl.load(x, mask=m)
    b_h: tl.tensor = tl.load(
        y,
        mask=m,
    )
    total += tl.load(x)
    b_k, b_v = tl.load(x), tl.load(y)
    total = helper(x)
    if tl.load(x) == 1:
        float4 v = data[i];
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "chunk.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (7, "b_g"),
        (8, "b_h"),
        (10, "b_h"),  # a line of the call
        (12, ""),  # what is loaded has no name of its own
        (13, "b_k, b_v"),
        (14, ""),  # no load
        (15, ""),
        (16, "v"),
        (99, ""),
    ],
)
def test_a_load_is_called_by_what_it_is_assigned_to(file: str, number: int, name: str) -> None:
    assert variable([(Line(file, number),)]) == name


def test_loads_of_several_variables(file: str) -> None:
    chains = [(Line(file, number),) for number in (7, 8, 7, 16)]
    assert variable(chains[:2]) == "b_g and b_h"
    assert variable(chains) == "b_g and 2 more"
    assert variable([*chains, (Line(file, 12),)]) == ""


def test_a_source_that_is_not_there_names_nothing() -> None:
    assert variable([(Line("gone.py", 7),)]) == ""
    assert title("wait for load", [(Line("a/gone.py", 7),)]) == "wait for load @gone.py:7"


def test_a_helper_is_shown_with_who_calls_it(file: str) -> None:
    chain = (Line(file, 3), Line(file, 14))
    assert title("wait for b_g", [chain]) == "wait for b_g @chunk.py:3 helper() < kernel():14"


def test_a_loop_is_in_the_calls_that_its_body_is_in(file: str) -> None:
    """The rule: two copies of an inlined loop, whose jumps have one line, have two names."""
    jump = (Line(file, 3),)
    first, second = (Line(file, 4), Line(file, 14)), (Line(file, 3), Line(file, 12))
    library = (Line("/triton/language/standard.py", 9), *first)
    assert called(jump, [first, library, ()]) == (*jump, Line(file, 14))
    assert title("loop", [called(jump, [second])]).endswith(":3 helper() < kernel():12")
    assert called(jump, [first, second]) == jump, "of which call is not known"
    assert called(jump, [(Line(file, 7),)]) == jump, "a body in another function"
    assert called((*jump, Line(file, 12)), [first]) == (*jump, Line(file, 12))
    assert called((), [first]) == ()


def test_a_languages_library_is_not_what_a_user_looks_for(file: str) -> None:
    library = Line("/x/site-packages/triton/language/standard.py", 290)
    assert title("barrier", [(library, Line(file, 14))]) == "barrier @chunk.py:14"


@pytest.mark.parametrize(
    "library",
    [
        "/x/tilelang/3rdparty/../src/tl_templates/cuda/barrier.h",
        "/x/tilelang/3rdparty/cutlass/include/cutlass/cutlass.h",
        "/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include/cuda_fp16.hpp",
    ],
)
def test_nor_are_headers_of_tilelang_and_cuda(library: str) -> None:
    chain = (Line(library, 7), Line("/tmp/gemm.cu", 65))
    assert title("mbarrier wait", [chain]) == "mbarrier wait @gemm.cu:65"
    assert title("mbarrier wait", [chain[:1]]) == f"mbarrier wait @{Path(library).name}:7"


def test_several_lines_are_told_up_to_three(file: str) -> None:
    chains = [(Line(file, number),) for number in (7, 8, 9, 10)]
    assert title("load x4", chains) == "load x4 @chunk.py:7+8+9+..."
    assert title("load", []) == "load"


WAITS = """\
    ring.consumer_wait(state)
    self.load_kv[0].wait(phase)
    handle = ab_consumer.wait_and_advance()
    mbarrier.wait(full.index(k), phase)
    cute.arch.mbarrier_wait(pointer, phase)
    first.acquire(state); second.acquire(state)
    waited = awaited(state)
"""


def test_a_wait_is_named_by_what_it_is_called_on(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(WAITS)
    chains = [(Line(str(path), number),) for number in range(1, 8)]
    assert [waited([chain]) for chain in chains] == [
        *("ring.consumer_wait", "self.load_kv[0].wait", "ab_consumer.wait_and_advance"),
        *("", "", "", ""),  # no object's method, or two
    ]
    assert waited(chains[:2]) == "" and waited([chains[0], chains[0]]) == "ring.consumer_wait"
    assert waited([(Line("gone.py", 7),)]) == ""


HELION = """\
@triton.jit
def _helion_add(a, out):
    # src[add.py:7]: for tile in hl.tile(out.size()):
    pid_0 = tl.program_id(0)
    indices_0 = pid_0 * 32
    # src[add.py:8]: out[tile] = (
    # src[add.py:9]:     a[tile]
    # src[add.py:8-10]: ...
    load = tl.load(a + indices_0)
    tl.store(out + indices_0, load)

def plain(a):
    b = a
"""


@pytest.mark.parametrize(
    ("number", "meant"), [(4, 7), (5, 7), (9, 8), (10, 8), (6, 8), (2, None), (13, None)]
)
def test_generated_code_is_shown_as_what_it_is_generated_from(
    tmp_path: Path, number: int, meant: int | None
) -> None:
    path = tmp_path / "generated.py"
    path.write_text(HELION)
    line = Line(str(path), number)
    assert original(line) == (line if meant is None else Line("add.py", meant))
    where = f"generated.py:{number}" if meant is None else f"add.py:{meant}"
    assert title("load", [(line,)]) == f"load @{where}"


NESTED = """\
def outer(x):
    def inner(
        y,
    ):
# a comment
        return y + 1
    total = inner(x)
    if total:
            total += 1
value = outer(1)
"""


def test_a_line_is_of_the_innermost_function_whose_body_it_is_in(tmp_path: Path) -> None:
    """A function that ended above it, or that it begins, does not count."""
    path = tmp_path / "nested.py"
    path.write_text(NESTED)
    lines = [(Line(str(path), number), Line(str(path), 10)) for number in (2, 6, 7, 8, 9)]
    names = [title("load", [chain]).split()[2] for chain in lines]
    assert names == ["outer()", "inner()", "outer()", "outer()", "outer()"]
