"""Ranges for chosen lines and functions, in code where a compiler has mixed the lines."""

from __future__ import annotations

import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ikp.errors import KernelError
from ikp.probes.made_patch import Patch
from ikp.probes.patch import patch
from ikp.probes.points.chosen_lines import LineChoice
from ikp.probes.points.groups import ChosenLandmark
from ikp.probes.points.probe_points import Level, ProbeRegions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.opcodes import Landmark
from ikp.unedited.plan import plan
from tests.probes.test_places import alternates, walk
from tests.products import THOROUGH
from tests.sass import kernels
from tests.sass.compiled import CASES, code, machine
from tests.sass.texts import sass

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

SOURCE = Path(kernels.__file__).read_text().splitlines()


def line(start: str, text: str) -> int:
    """Return the number of the first line with a text, in the function of a name."""
    first = next(n for n, each in enumerate(SOURCE) if each.startswith(f"def {start}("))
    return next(n for n, each in enumerate(SOURCE[first:], first + 1) if text in each)


def chosen(
    name: str, *lines: str, functions: tuple[str, ...] = (), ptx: bool = True
) -> ProbeRegions:
    made = plan(lines=lines, functions=functions, level="machine")
    return ProbeRegions(machine(name).flow, code(name).ptx * ptx, made.lines, made.functions)


def names(found: ProbeRegions) -> list[str]:
    """Return the ranges of chosen lines, without where they are."""
    return [p.name.partition(" @")[0] for p in found.at(Level.KERNEL) if p.kind == "lines"]


def test_a_pipelined_load_is_a_wait_and_an_issue_for_later() -> None:
    found = chosen("matmul", f"kernels.py:{line('matmul', 'x = tl.load')}")
    loop = machine("matmul").flow.loops[0].body
    inside = [p for p in found.all if p.kind == "lines" and p.start.index in loop]
    assert [re.sub(" @.*", "", p.name) for p in inside] == [
        "load: wait",
        "load: issue for a later iteration",
    ]
    code = machine("matmul").flow.code.instructions
    assert [code[at].op for at in inside[0].holds] == ["DEPBAR", "BAR"]
    assert [code[at].op for at in inside[1].holds].count("LDGSTS") == 4


def test_both_loads_of_an_iteration_wait_at_one_place() -> None:
    lines = [f"kernels.py:{line('matmul', f'{x} = tl.load')}" for x in "xy"]
    first, second = (chosen("matmul", each) for each in lines)
    waits = [
        {(p.start.index) for p in each.all if p.name.startswith("load: wait")}
        for each in (first, second)
    ]
    assert waits[0] == waits[1]


def test_a_dot_lasts_from_its_issue_to_its_wait_by_the_ptx() -> None:
    number = line("matmul", "tl.dot")
    found = chosen("matmul", str(number))
    product = next(p for p in found.all if p.kind == "lines")
    assert product.name == f"dot: issue to wait @kernels.py:{number}"
    ops = [machine("matmul").flow.code.instructions[at].op for at in product.holds]
    assert ops.count("HGMMA") == 4 and ops[-1] == "WARPGROUP"


def test_a_statement_without_an_anchor_gets_the_stretch_that_holds_most_of_it() -> None:
    number = line("attention", "softened(")
    (told,) = (each.message for each in chosen("attention", str(number)).choices)
    found = re.fullmatch(
        rf"kernels\.py:{number}: (\d+) of its (\d+) instructions, (\d+) others inside, "
        rf"(\d+) of kernels\.py:\d+",
        told,
    )
    assert found
    held, own, others, most = map(int, found.groups())
    assert held > 0.9 * own and others < held / 2 and most <= others


def test_a_function_is_its_lines_wherever_it_is_inlined() -> None:
    found = chosen("attention", functions=("softened",))
    assert names(found)[0] == "softened()"
    number = line("attention", "softened(")
    by_line = next(p for p in chosen("attention", str(number)).all if p.kind == "lines")
    (by_name,) = (p for p in found.all if p.name == "softened()")
    assert len({*by_name.holds} & {*by_line.holds}) > 0.9 * len(by_name.holds)


def test_lines_with_a_whole_loop_are_one_range_around_it() -> None:
    first, last = line("rms_norm", "for start"), line("rms_norm", "squares +=")
    place = next(p for p in chosen("rms_norm", f"{first}-{last}").all if p.kind == "lines")
    assert place.name == f"loop @kernels.py:{first}-{last}"
    assert machine("rms_norm").flow.loops[0].body <= {*place.holds}


def test_a_wait_for_a_load_is_that_wait_alone() -> None:
    number = line("rms_norm", "gain = tl.load")
    waits = [p for p in chosen("rms_norm", str(number)).all if p.name.startswith("load: wait")]
    assert waits and all(p.waits and p.start == p.end for p in waits)


PART = 1 if THOROUGH else 3
"""Every how many lines of a kernel are chosen: in each kernel, others."""


@pytest.mark.parametrize("name", CASES)
def test_chosen_ranges_alternate_nest_and_hold_no_anchor_of_others(name: str) -> None:
    flow = machine(name).flow
    numbers = {each.number for i in flow.code.instructions for each in i.lines
               if each.file == kernels.__file__}  # fmt: skip
    for number in sorted(numbers)[list(CASES).index(name) % PART :: PART]:
        found = chosen(name, f"kernels.py:{number}")
        ours = [p for p in found.all if p.kind == "lines"]
        alternates(flow, ours)
        walk(flow, found.all, random.Random(number))
        (choice, *_) = found.choices
        assert choice.piece is None or ours


def patched(name: str, *lines: str, functions: tuple[str, ...] = (), **more: str) -> Patch:
    made, chosen = code(name).compiled, plan(lines=lines, functions=functions, level="machine")
    return patch(
        *(made.asm["cubin"], made.name),
        **{"detail": "kernel", **more},
        ptx=made.asm["ptx"],
        lines=chosen.lines,
        functions=chosen.functions,
    )


def test_a_patch_records_chosen_lines_beside_its_detail() -> None:
    number = line("matmul", "tl.dot")
    alone = patched("matmul", str(number))
    assert alone.names[0] == "matmul"
    assert f"dot: issue to wait @kernels.py:{number}" in alone.names
    assert (
        f"dot: issue to wait @kernels.py:{number}: 17 of its 31 instructions" in alone.messages[0]
    )
    both = patched("matmul", str(number), detail="ops")
    assert {*alone.names} < {*both.names}


def test_lines_of_which_nothing_is_left_say_where_it_went() -> None:
    number, used = line("matmul", "depth ="), line("matmul", "left = a")
    words = rf"kernels\.py:{number} has no instructions of its own in matmul: what it computes is "
    with pytest.raises(KernelError, match=rf"{words}.* that use depth: {used} \(\d+ instr"):
        patched("matmul", str(number))
    beside = patched("matmul", str(number), str(line("matmul", "tl.dot")))
    assert any("has no instructions of its own" in note for note in beside.notes)


@pytest.mark.parametrize(
    ("lines", "functions", "words"),
    [
        (
            ("other.py:3",),
            (),
            r"no code of matmul comes from other\.py:3: it comes from kernels\.p",
        ),
        (("1",), (), r"kernels\.py:1 has no instructions in matmul, whose code comes from"),
        ((), ("softened",), "no code of matmul comes from a function softened. Its code is of mat"),
    ],
)
def test_what_is_not_in_the_kernel_is_refused_in_words(
    lines: tuple[str, ...], functions: tuple[str, ...], words: str
) -> None:
    with pytest.raises(KernelError, match=words):
        patched("matmul", *lines, functions=functions)


def test_a_cubin_without_line_numbers_is_told() -> None:
    found = ProbeRegions(
        Flow(sass("LDG.E R4, desc[UR4][R2.64]", "EXIT")), "", plan(lines="3").lines
    )
    assert "has no line numbers" in found.choices[0].message


def test_a_function_that_is_called_twice_says_which_call_it_is() -> None:
    def inlined(number: int, call: int, text: str) -> tuple[str, ...]:
        at = kernels.__file__
        first = f'//## File "{at}", line {number} inlined at "{at}", line {call}'
        return f"\t{first}", f'\t//## File "{at}", line {call}', text

    number = line("softened", "factor =")
    product = "HGMMA.64x8x16.F32 R8, gdesc[UR4], R8"
    code = sass(
        *inlined(number, 63, "FADD R1, R2, R3"),
        *('\t//## File "/x/other.py", line 5', product),
        *inlined(number, 66, "FADD R4, R5, R6"),
        *inlined(number, 66, "FADD R5, R6, R7"),
        "EXIT",
    )
    (name,) = names(ProbeRegions(Flow(code), "", (), ("softened",)))
    assert name == "softened() < kernels.py:66"  # the call of which there is more


def test_a_wait_at_an_mbarrier_is_for_the_load_that_it_awaits() -> None:
    """Where it awaits none that is known, it is a wait at an mbarrier."""
    choice = cast("LineChoice", SimpleNamespace(origins=SimpleNamespace(awaited={5: (3,)})))
    words = [
        LineChoice._word(choice, cast("ChosenLandmark", event), Landmark.MBARRIER_WAIT)
        for event in (SimpleNamespace(members=(5, 8)), SimpleNamespace(members=(6,)))
    ]
    assert words == ["load", "mbarrier"]
