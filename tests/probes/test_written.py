"""Ranges that a source names: which there are, and where their code is."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ikp.probes.patch import patch
from ikp.probes.points.chosen_lines import LineChoice, Piece
from ikp.probes.points.chosen_ranges import Named
from ikp.probes.points.probe_points import Level, ProbeRegions
from ikp.probes.points.sese_regions import Point
from ikp.probes.points.source_ranges import NamedRange, Unpaired, written
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.outstanding import LoadWait
from ikp.sass.dataflow.reading import read
from tests.backends.sass import Code, compile_kernel
from tests.kernels import named
from tests.sass.compiled import HALF, TILE

pytestmark = pytest.mark.any_pins

SOURCE = """\
import ikp, ikp.verbs as verbs
from ikp import range as around
import cutlass.cute.experimental.iket as it


def kernel(x, ctx, prof):
    from cutlass.cute.experimental import iket

    with ikp.range("outer", x):
        a = 1
        with around(f"of {x}") as b, open("range"):
            c = 2
            d = 3
    iket.range_push("pushed")
    e = 4
    if x:
        it.range_push("inner")
        f = 5
        it.range_pop()
    iket.range_pop()
    ctx = ikp.start(ctx, "started")
    g = 6
    ctx = ikp.end(ctx)
    token = ikp.start_async(ctx, region="flight")
    h = 7
    other = iket.range_start("crosses")
    i = 8
    ctx = ikp.end_async(ctx, token)
    iket.range_end(other)
    ikp.start(ctx, "never closed")
    for _ in x:
        late = ikp.start_async(ctx, "later")
        ikp.range("no with")
        math.range("none of ours")

    def helper():
        with ikp.range("helped"):
            return 9


def other(range):
    with range("its own"):
        pass
"""


def test_ranges_are_between_the_statements_that_begin_and_end_them(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(SOURCE)
    lines = SOURCE.splitlines()
    found = written(str(path))
    ranges = {each.name: each for each in found if isinstance(each, NamedRange)}
    inside = {
        name: "\n".join(lines[each.first - 1 : each.last]).split() for name, each in ranges.items()
    }
    assert {name: [text for text in body if text.isdigit()] for name, body in inside.items()} == {
        "outer": ["1", "2", "3"],
        "f'of {x}'": ["2", "3"],
        "pushed": ["4", "5"],
        "inner": ["5"],
        "started": ["6"],
        "flight": ["7", "8"],
        "crosses": ["8"],
        "helped": ["9"],
    }
    assert {each.name for each in found if isinstance(each, Unpaired)} == {"never closed", "later"}
    assert ranges["helped"].function == "helper"
    assert ranges["outer"].within(str(path)) and not ranges["outer"].within("k.py")
    assert all(
        each.around.start == lines.index("def kernel(x, ctx, prof):") + 1
        for each in found
        if each.function == "kernel"
    )


BESIDE = """\
from .ikp import range
from . import ikp

def k():
    with range("x"):
        a = 1
"""


@pytest.mark.parametrize("text", ["def k(:", "\0", "import ikp\n", BESIDE])
def test_a_source_without_them_has_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    assert written(str(path)) == ()
    assert written(str(tmp_path / "gone.py")) == ()


TYPES = {"a_ptr": HALF, "b_ptr": HALF, "c_ptr": HALF, "N": "i32", "K": "i32"}


@cache
def compiled(plain: bool = False) -> Code:
    kernel = named.matmul_plain if plain else named.matmul
    made = {"num_warps": 8, "num_stages": 3}
    return compile_kernel(kernel, TYPES, None, TILE, divisible=True, **made)


def words(code: Code) -> bytes:
    file = Cubin.read(code.compiled.asm["cubin"])
    (name,) = file.kernels
    return file.kernel(name).words.tobytes()


@pytest.mark.compiled
def test_they_are_found_in_the_code_of_the_kernel_without_them() -> None:
    assert words(compiled()) == words(compiled(plain=True))
    made = patch(
        compiled().compiled.asm["cubin"], "matmul", detail="kernel", ptx=compiled().ptx, ranges=True
    )
    assert set(made.names) == {
        "matmul",
        *("load: issue", "load: wait", "load: issue for a later iteration"),
        *("dot: issue to wait", "dot: wait"),
        *("store", "store: barrier to issue"),
    }
    told = dict(text.split(": ", 1) for text in made.messages if text.startswith("load: wait"))
    assert told == {"load": "wait: 3 of its 53 instructions in 2 places, no other"}
    unasked = patch(compiled().compiled.asm["cubin"], "matmul", detail="kernel", ptx=compiled().ptx)
    assert unasked.names == ("matmul",)


@pytest.mark.compiled
def test_each_holds_what_it_names() -> None:
    (machine,) = read(compiled().compiled.asm["cubin"])
    instructions = machine.flow.code.instructions
    places = ProbeRegions(machine.flow, compiled().ptx, named=True)
    held: dict[str, Counter[str]] = {}
    for place in places.at(Level.KERNEL):
        ops = Counter(instructions[at].op for at in place.holds)
        held[place.name] = held.get(place.name, Counter()) + ops
    assert held["dot: issue to wait"]["HGMMA"] == 4
    assert held["store: barrier to issue"]["STG"] == 8
    assert held["load: issue for a later iteration"]["LDGSTS"] == 8
    assert held["load: wait"].keys() == {"DEPBAR", "BAR"}
    for op, name in (("LDGSTS", "load"), ("HGMMA", "dot"), ("STG", "store")):
        assert not any(ops[op] for other, ops in held.items() if not other.startswith(name))


@pytest.mark.compiled
def test_a_stretch_that_is_mostly_of_others_is_not_the_range() -> None:
    """From the first load to the last stand the powers of what was loaded before."""
    types = {"x": "*fp32", "out": "*fp32"}
    code = compile_kernel(named.summed, types, None, {"N": 1024}, divisible=True)
    (machine,) = read(code.compiled.asm["cubin"])
    places = ProbeRegions(machine.flow, code.ptx, named=True, rows=True).at(Level.KERNEL)
    held = Counter(place.name for place in places if place.kind == "lines")
    assert held == {"load: issue to wait": 4, "load: wait": 4}


def test_parts_of_a_range_are_of_the_call_whose_instructions_they_hold() -> None:
    """Of a wait for loads, these are the loads, too, wherever they are."""

    def part(at: int, *holds: int, waits: int = 0) -> Piece:
        return Piece("part", Point(at), Point(at + 1), holds, waits=waits)

    loads = SimpleNamespace(waits=[LoadWait(8, 2, (3, 4))])
    named = Named(cast("LineChoice", loads))
    first, second, awaited = part(1, 1, 2), part(5, 5), part(7, 7, waits=1)
    parts = [first, second, awaited]
    assert named._parted(parts, [2]) == ([first], [second, awaited])
    assert named._parted(parts, [5, 4]) == ([second, awaited], [first])
    assert named._parted(parts, [6]) == ([], parts)


def test_a_range_may_be_one_instruction() -> None:
    graph = SimpleNamespace(jumps=SimpleNamespace(leaving={9}), block=lambda at: at // 4)
    named = Named(cast("LineChoice", SimpleNamespace(flow=SimpleNamespace(graph=graph))))
    assert [*named._ends([5])] == [(Point(5), Point(5, after=True))]
    assert [*named._ends([5, 6, 9])] == [(Point(5), Point(6, after=True))]
    assert next(named._ends([2, 5])) == (Point(2), Point(5, after=True))
