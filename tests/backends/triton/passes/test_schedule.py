"""Where the scheduler puts clock reads and stores, and that no program does anything else by it."""

from __future__ import annotations

import re
from collections import Counter
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ikp.backends.triton.passes.schedule import CHAIN, HANDFUL, MAX_PENDING, schedule
from ikp.core import abi
from ikp.core.abi import OverflowMode
from tests.machines.ptx_kernel import Kernel
from tests.machines.ptx_machine import Machine
from tests.machines.ptx_order import check_rearranged, empty_ranges

pytestmark = pytest.mark.any_pins

SEGMENT, DATA = 0x7F00_0000_0000, 0x7E00_0000_0000
START = "// ikp.clock\nmov.u32 {0}, %clock;\n// ikp.end"
END = """\
// ikp.clock
mov.u32 {1}, %clock;
// ikp.store 7 "x"
{{
@p st.global.v4.b32 [a], {{0x20000007, {0}, {1}, {2}}};
add.u32 ikp_cur, ikp_cur, 1;
}}
// ikp.end"""


def program(text: str) -> str:
    """Return PTX from a shorthand: ``start W``, ``end W E P`` and instructions, one per line."""
    lines = ["// ikp.schedule"]
    for line in dedent(text).strip().splitlines():
        word, *rest = line.split()
        form = {"start": START, "end": END}.get(word)
        lines.append(form.format(*rest, "0") if form else f"\t{line}")
    return "\n".join(lines)


def shorthand(text: str) -> list[str]:
    """Return the order of a scheduled text: clocks and stores by their registers."""
    out = []
    for line in text.split("\n"):
        line = line.strip()  # noqa: PLW2901
        if line.endswith("%clock;"):
            out.append(f"clock {line.split()[1].rstrip(',')}")
        elif line.startswith("@p st.global"):
            out.append(f"store {line.split(', ')[3 - 1]}")
        elif line and not line.startswith(("//", "{", "}", "add.u32 ikp_cur")):
            out.append(line)
    return out


def scheduled(text: str) -> list[str]:
    before = program(text)
    after = schedule(before)
    check_rearranged(before, after)
    assert empty_ranges(after) <= empty_ranges(before)
    return shorthand(after)


@pytest.mark.parametrize("text", ["", "a\n\n\tb", program("start %r1").replace("schedule", "")])
def test_text_without_the_mark_comes_back_as_it_is(text: str) -> None:
    assert schedule(text) == text


def test_a_kernel_without_records_comes_back_as_it_is() -> None:
    text = program("mov.u32 %r1, 5;\n// note\nadd.s32 %r2, %r1, 1;")
    assert schedule(text) == text


def test_a_store_moves_to_the_end_of_its_block() -> None:
    order = scheduled("""
        start %r1
        ld.global.b32 %r3, [%rd1];
        end %r1 %r2
        mul.f32 %r4, %r3, %r3;
        bar.sync 0;
        st.global.b32 [%rd1], %r4;
        ret;
    """)
    assert order == [
        "clock %r1",
        "ld.global.b32 %r3, [%rd1];",
        "clock %r2",
        "mul.f32 %r4, %r3, %r3;",
        "bar.sync 0;",
        "st.global.b32 [%rd1], %r4;",
        "store %r1",
        "ret;",
    ]


@pytest.mark.parametrize(
    "border", ["$L__BB0_2:", "bra $L__BB0_2;", "@%p1 bra $L__BB0_2;", "{", "}", "ret;",
               "call.uni f;", "@!%p2 exit;", ".reg .b32 %r<5>;", "add.u32 ikp_cur, ikp_cur, 0;"]
)  # fmt: skip
def test_nothing_crosses_a_border(border: str) -> None:
    text = f"""
        end %r1 %r2
        {border}
        shl.b32 %r5, %r6, 2;
        ld.global.b32 %r7, [%r5];
        start %r3
        {border}
        shl.b32 %r5, %r6, 2;
        ld.global.b32 %r7, [%r5];
    """
    before = program(text)
    after = schedule(before)
    assert [line for line in after.split("\n") if line] == before.split("\n")


def test_stores_keep_their_order() -> None:
    order = scheduled("""
        end %r1 %r2
        mov.b32 %r9, 1;
        end %r3 %r4
        mul.f32 %r9, %r9, %r9;
        end %r5 %r6
        ret;
    """)
    stores = [line for line in order if line.startswith("store")]
    assert stores == ["store %r1", "store %r3", "store %r5"]
    assert order[-4:] == [*stores, "ret;"]


@pytest.mark.parametrize(
    "writer",
    [
        "mov.b32 %r8, 5;",
        "ld.global.b32 %r8, [%rd1];",
        "ld.global.v2.b32 {%r9, %r8}, [%rd1];",
        "mov.b64 {%r9, %r8}, %rd1;",
        "@%p1 add.s32 %r8, %r9, 1;",
        "shr.u32 %r9, %r7, 4; and.b32 %r8, %r7, 15;",
        "shfl.sync.idx.b32 %r8|%p1, %r9, 0, 31, -1;",
        "atom.global.add.u32 %r8, [%rd1], 1;",
    ],
)
def test_a_store_stays_before_what_overwrites_its_payload(writer: str) -> None:
    order = scheduled(f"end %r1 %r2 %r8\nbar.sync 0;\n{writer}\nbar.sync 1;\nret;")
    last = writer.rpartition("; ")[2]
    assert order.index("bar.sync 0;") < order.index("store %r1") < order.index(last)


def test_a_store_passes_what_only_reads_its_payload() -> None:
    order = scheduled("end %r1 %r2 %r8\nbar.sync 0;\nadd.s32 %r9, %r8, 1;\nret;")
    assert order[-2:] == ["store %r1", "ret;"]


def test_a_next_start_in_the_same_register_holds_the_store_back() -> None:
    order = scheduled("end %r1 %r2\nbar.sync 0;\nstart %r1\nbar.sync 1;\nret;")
    assert order == ["clock %r2", "bar.sync 0;", "store %r1", "clock %r1", "bar.sync 1;", "ret;"]


def test_few_records_wait_at_once() -> None:
    """Each waiting record holds registers: a long block would spill."""
    text = "\n".join(f"start %r{i}\nbar.sync {i};\nend %r{i} %r{i + 1}" for i in range(0, 40, 2))
    waiting = most = 0
    for line in scheduled(f"{text}\nret;"):
        odd = line.startswith("clock") and int(line.split("%r")[1]) % 2
        waiting += bool(odd) - line.startswith("store")
        most = max(most, waiting)
    assert most <= MAX_PENDING + 1


ADDRESSES = ["shl.b32 %r5, %r6, 2;", "cvt.u64.u32 %rd2, %r5;", "add.s64 %rd3, %rd1, %rd2;"]
LOAD = "ld.global.b32 %r7, [%rd3];"


def test_an_end_moves_past_settled_address_arithmetic() -> None:
    order = scheduled("\n".join(["bar.sync 0;", "end %r1 %r2", *ADDRESSES, LOAD, "ret;"]))
    assert order[:6] == ["bar.sync 0;", *ADDRESSES, "clock %r2", LOAD]


def test_a_start_stays_where_it_is_written() -> None:
    order = scheduled("\n".join(["start %r1", *ADDRESSES, LOAD, "end %r1 %r2", "ret;"]))
    assert order[:5] == ["clock %r1", *ADDRESSES, LOAD]


@pytest.mark.parametrize(
    ("step", "passed"),
    [
        ("add.s32 %r{1}, %r3, 4;", HANDFUL),
        ("add.s64 %rd{1}, %rd3, 4;", HANDFUL // 2),
        ("add.s32 %r{1}, %r{0}, 4;", CHAIN),
        ("add.s64 %rd{1}, %rd{0}, 4;", CHAIN // 2),
    ],
)
def test_an_end_passes_a_handful_of_machine_instructions(step: str, passed: int) -> None:
    steps = [step.format(n, n + 1) for n in range(10, 25)]
    order = scheduled("\n".join(["end %r1 %r2", *steps, "bar.sync 1;", "ret;"]))
    assert order.index("clock %r2") == passed


@pytest.mark.parametrize(
    "use",
    [
        "cp.async.cg.shared.global [%r5], [%rd1], 16, %r9;",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r5];",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r30}, %rd4, %rd5, 1, 1, 1, 0, 1;",
        "mbarrier.arrive.shared.b64 %rd9, [%r5];",
        "st.shared.b32 [%r5], %r31;",
    ],
)
def test_what_counts_as_an_address(use: str) -> None:
    arithmetic = ["add.s32 %r5, %r6, 64;", "add.s64 %rd4, %rd6, 2;", "add.s64 %rd5, %rd7, 2;"]
    kept = [line for line in arithmetic if line.split()[1].rstrip(",") in use]
    assert kept
    order = scheduled("\n".join(["end %r1 %r2", *kept, use, "ret;"]))
    assert order[: len(kept) + 1] == [*kept, "clock %r2"]


@pytest.mark.parametrize(
    "work",
    [
        "ld.global.b32 %r5, [%rd1];",
        "st.global.b32 [%rd1], %r6;",
        "bar.sync 0;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r5}, {%r6}, {%r7}, {%r5};",
        "mul.f32 %r5, %r6, %r7;",
        "add.f16x2 %r5, %r6, %r7;",
        "cvt.rn.f16x2.f32 %r5, %r6, %r7;",
        "ex2.approx.f32 %r5, %r6;",
        "cp.async.wait_group 0;",
        "fence.proxy.async.shared::cta;",
        "shfl.sync.idx.b32 %r5, %r6, 0, 31, -1;",
        "atom.global.add.u32 %r5, [%rd1], 1;",
        "wgmma.fence.sync.aligned;",
        "div.u32 %r5, %r6, 3;",
        "rem.u32 %r5, %r6, 3;",
        "popc.b32 %r5, %r6;",
        "mul.lo.s64 %r5, %r6, 3;",
        "mov.u32 %r5, %tid.x;",
        "@%p1 add.s32 %r5, %r6, 4;",
    ],
)
def test_a_clock_never_passes_work(work: str) -> None:
    use = "st.global.b32 [%r5], 1;"
    order = scheduled(f"start %r1\n{work}\n{use}\nend %r1 %r2\nret;")
    assert order[:3] == ["clock %r1", work, use]
    order = scheduled(f"end %r1 %r2\n{work}\n{use}\nret;")
    assert order[:3] == ["clock %r2", work, use]


@pytest.mark.parametrize(
    "use",
    [
        "st.global.b32 [%rd1], %r5;",
        "@%p2 st.global.v2.b32 [%rd1], {%r6, %r5};",
        "add.f32 %r7, %r5, %r5;",
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r8}, {%r5}, {%r9}, {%r8};",
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r8}, {%r5}, %rd5, 1, 1, 1;",
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r6], {%r5};",
        "sub.s32 %r7, %r5, 1;\nst.global.b32 [%rd1], %r7;",
        "red.global.add.u32 [%rd1], %r5;",
    ],
)
def test_arithmetic_that_yields_data_is_work(use: str) -> None:
    order = scheduled(f"end %r1 %r2\nxor.b32 %r5, %r6, %r7;\n{use}\nret;")
    assert order[:2] == ["clock %r2", "xor.b32 %r5, %r6, %r7;"]


MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r30}, %rd4, %rd5, 1, 1, 1, 0, 1;"


def test_a_store_stops_where_the_warp_waits_for_all_multiplications() -> None:
    wait = "wgmma.wait_group.sync.aligned \t0;"
    lines = ["end %r1 %r2", MMA, wait, "st.shared.b32 [%r5], %r6;", "ret;"]
    assert scheduled("\n".join(lines))[1:4] == [MMA, "store %r1", wait]


def test_it_goes_on_where_some_stay_in_flight() -> None:
    lines = ["end %r1 %r2", MMA, "wgmma.wait_group.sync.aligned 1;", "ret;"]
    assert scheduled("\n".join(lines))[-2:] == ["store %r1", "ret;"]


def test_it_stays_out_of_a_range_around_that_wait() -> None:
    wait = "wgmma.wait_group.sync.aligned 0;"
    lines = ["end %r1 %r2", MMA, "start %r3", wait, "end %r3 %r4", "ret;"]
    order = scheduled("\n".join(lines))
    assert order == [
        *("clock %r2", MMA, "store %r1", "clock %r3", wait, "clock %r4", "store %r3", "ret;")
    ]


@pytest.mark.parametrize(
    ("payload", "inside"), [("mov.b32 %r8, 5;", True), ("ld.global.b32 %r8, [%rd1];", False)]
)
def test_no_payload_is_waited_for_in_another_range(payload: str, inside: bool) -> None:
    wait = "wgmma.wait_group.sync.aligned 0;"
    lines = [payload, "end %r1 %r2 %r8", "start %r3", MMA, wait, "end %r3 %r4", "ret;"]
    order = scheduled("\n".join(lines))
    assert (order.index("clock %r3") < order.index("store %r1") < order.index(wait)) is inside
    assert order.index("store %r1") < order.index("clock %r4")


BARRIER = "bar.sync 1, 256;"


@pytest.mark.parametrize("form", ["{}", "// begin inline asm\n{}\n// end inline asm"])
def test_every_barrier_stays(form: str) -> None:
    """Whoever waits at them may run other code, and count on both."""
    barrier = form.format(BARRIER)
    text = program("end %r1 %r2\nend %r3 %r4\nret;").replace("// ikp.end", f"// ikp.end\n{barrier}")
    text = text.replace("// ikp.schedule", f"// ikp.schedule\n{barrier}")
    assert schedule(text).count(BARRIER) == text.count(BARRIER) == 3


# What an end may have to wait for, if it passed what reads %r6: how %r6 is made, and the answer.
IN_FLIGHT = {
    "a load": ("ld.global.b32 %r6, [%rd1];", False),
    "a load, through arithmetic": ("ld.global.b32 %r4, [%rd1];\nshl.b32 %r6, %r4, 2;", False),
    "a load, into one half": (
        """
        ld.global.b32 %r4, [%rd1];
        mov.b64 %rd6, {%r4, %r3};
        mov.b64 {%r6, %r8}, %rd6;
        """,
        False,
    ),
    "an atomic": ("atom.global.add.u32 %r6, [%rd1], 1;", False),
    "a shuffle": ("shfl.sync.idx.b32 %r6|%p1, %r4, 0, 31, -1;", False),
    "a division": ("div.u32 %r6, %r4, 3;", False),
    "a float": ("cvt.rzi.s32.f32 %r6, %f1;", False),
    "a wait": (
        """
        mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0;
        selp.b32 %r6, 1, 2, %p1;
        """,
        False,
    ),
    "an unknown": ("new.thing.b32 %r6, %r4;", False),
    "assembly": ("// begin inline asm\nadd.s32 %r6, %r4, %r4;\n// end inline asm", False),
    "a parameter of a function": ("ld.param.b32 %r6, [f_param_0];", False),
    "a load in part of the ways": (
        """
        mov.b32 %r6, 1;
        @%p1 bra L;
        ld.global.b32 %r6, [%rd1];
        L:
        """,
        False,
    ),
    "a load of the iteration before": (
        """
        L:
        add.s32 %r4, %r6, 4;
        st.global.b32 [%rd1], %r4;
        ld.global.b32 %r6, [%rd1];
        @%p1 bra L;
        """,
        False,
    ),
    "a load waited for by arithmetic": ("ld.global.b32 %r6, [%rd1];\nadd.s32 %r8, %r6, 1;", False),
    "a load waited for where the guard holds": (
        """
        ld.global.b32 %r6, [%rd1];
        @%p1 st.global.b32 [%r6], %r3;
        """,
        False,
    ),
    "a register hidden in a scope": (
        """
        ld.global.b32 %r6, [%rd1];
        {
        .reg .b32 %r6;
        mov.b32 %r6, 1;
        st.global.b32 [%rd1], %r6;
        }
        """,
        False,
    ),
    "a parameter of the kernel": ("ld.param.b32 %r6, [k_param_0];", False),
    "a parameter that a store has waited for": (
        """
        ld.param.b32 %r6, [k_param_0];
        st.global.b32 [%rd1], %r6;
        """,
        True,
    ),
    "a special register": ("mov.u32 %r4, %tid.x;\nand.b32 %r6, %r4, 31;", False),
    "a load that a store has waited for": (
        """
        ld.global.b32 %r6, [%rd1];
        st.global.b32 [%rd1], %r6;
        """,
        True,
    ),
    "a load that a store of its sum has waited for": (
        """
        ld.global.b32 %r6, [%rd1];
        add.s32 %r8, %r6, 1;
        st.global.b32 [%rd1], %r8;
        """,
        True,
    ),
    "a load that the block before has waited for": (
        """
        ld.global.b32 %r6, [%rd1];
        st.global.b32 [%rd1], %r6;
        @%p1 bra L;
        L:
        """,
        True,
    ),
    "a counter": ("mov.b32 %r6, 0;\nL:\nadd.s32 %r6, %r6, 1;\n@%p1 bra L;", True),
}


@pytest.mark.parametrize("name", IN_FLIGHT)
def test_an_end_passes_only_what_need_not_wait(name: str) -> None:
    made, passes = IN_FLIGHT[name]
    head = ".visible .entry k(\n.param .u32 k_param_0\n)\n{"
    body = "bar.sync 1;\nend %r1 %r2\nshl.b32 %r5, %r6, 2;\nld.global.b32 %r7, [%r5];\nret;\n}"
    order = shorthand(schedule(program(f"{head}\n{dedent(made).strip()}\n{body}")))
    assert (order.index("shl.b32 %r5, %r6, 2;") < order.index("clock %r2")) is passes


LINED = """
    .loc 1 10 1
    start %r1
    .loc 1 {first} 1
    bar.sync 0;
    .loc 1 10 1
    end %r1 %r2
    .loc 1 {passed} 1
    shl.b32 %r5, %r6, 2;
    ld.global.b32 %r7, [%r5];
    .loc 1 20 1
    start %r3
    .loc 1 21 1
    bar.sync 2;
    .loc 1 20 1
    end %r3 %r4
    ret;
"""


@pytest.mark.parametrize(("passed", "passes"), [(21, False), (11, True), (30, True)])
def test_an_end_does_not_pass_what_comes_from_another_ranges_line(
    passed: int, passes: bool
) -> None:
    """As in a software pipeline: part of a line's work stands where the next iteration needs it."""
    text = program(LINED.format(first=11, passed=passed)).replace('7 "x"', '8 "y"', 1)
    order = [line for line in shorthand(schedule(text)) if not line.startswith(".loc")]
    assert (order.index("shl.b32 %r5, %r6, 2;") < order.index("clock %r2")) is passes


def test_a_line_that_a_range_around_holds_too_may_be_passed() -> None:
    text = LINED.format(first=11, passed=30).replace("ret;", "end %r9 %r8\nret;")
    text = program("start %r9\n" + dedent(text).strip()).replace('7 "x"', '8 "y"', 1).replace(
        '7 "x"', '9 "z"', 1
    )  # fmt: skip
    order = [line for line in shorthand(schedule(text)) if not line.startswith(".loc")]
    assert order.index("shl.b32 %r5, %r6, 2;") < order.index("clock %r2")


def test_an_end_passes_nothing_of_assembly_and_does_not_enter_it() -> None:
    block = "// begin inline asm\nshl.b32 %r5, %r6, 2;\n// end inline asm"
    text = f"end %r1 %r2\nadd.s32 %r4, %r3, 1;\n{block}\nld.shared.v2.b32 {{%r7, %r8}}, [%r5];"
    lines = schedule(program(f"{text}\nld.global.b32 %r9, [%r4];\nret;")).split("\n")
    passed = [line.strip() for line in lines].index("add.s32 %r4, %r3, 1;")
    assert lines[passed + 1 :][:2] == ["// ikp.clock", "mov.u32 %r2, %clock;"]
    assert lines[passed + 3].strip() == "// begin inline asm"


@pytest.mark.parametrize(
    "assembly",
    [
        "ld.global.b32\n{spill},\n[%rd1];",  # one statement on three lines
        "bar.sync 3; ld.global.b32 {spill}, [%rd1]; bar.sync 4;",  # three on one
        "bar.sync 3; /* ; */ mov.b32 {spill}, 5; // {spill}",
    ],
)
@pytest.mark.parametrize("spill", ["%r8", "%mine", "acc", "$a_b", "_", "%a$0"])
def test_statements_and_names_are_those_of_the_language(assembly: str, spill: str) -> None:
    """A store reads ``spill``: it may pass what stands before, never what writes it."""
    code = f"// begin inline asm\n{assembly.format(spill=spill)}\n// end inline asm"
    before = program(f"end %r1 %r2 {spill}\nbar.sync 0;\n{code}\nret;")
    after = schedule(before)
    text = re.sub(r"//.*|/\*.*?\*/", "", after)
    written = min(text.index(f"{spill}{end}") for end in (",", " ,") if f"{spill}{end}" in text)
    assert text.index("bar.sync 0") < text.index("@p st.global") < written
    assert "".join(sorted(after.split())) == "".join(sorted(before.split()))
    assert "ld.global.b32\n%" not in after or "ld.global.b32\n%" in before


def test_a_branch_beside_other_code_is_one() -> None:
    text = program("end %r1 %r2\nsetp.eq.s32 %p, %r6, 0; @%p bra L; mov.b32 %r9, 1;\nL: ret;")
    lines = [line.strip() for line in schedule(text).split("\n")]
    assert lines.index("@p st.global.v4.b32 [a], {0x20000007, %r1, %r2, 0};") < lines.index(
        "@%p bra L; mov.b32 %r9, 1;"
    )


def test_a_store_comes_to_rest_in_no_range_that_begins_after_it() -> None:
    inner = ["start %r3", "bar.sync 1;", "$L__BB0_1:", "bar.sync 2;", "end %r3 %r4"]
    order = scheduled("\n".join(["end %r1 %r2", "bar.sync 0;", *inner, "ret;"]))
    assert order[:4] == ["clock %r2", "bar.sync 0;", "store %r1", "clock %r3"]


def test_arithmetic_used_both_ways_is_work() -> None:
    order = scheduled("""
        end %r1 %r2
        add.s32 %r5, %r6, 4;
        ld.global.b32 %r7, [%r5];
        st.global.b32 [%rd1], %r5;
        ret;
    """)
    assert order[0] == "clock %r2"


def test_a_use_in_a_later_block_counts() -> None:
    order = scheduled("""
        end %r1 %r2
        add.s32 %r5, %r6, 4;
        ld.global.b32 %r7, [%r5];
        $L__BB0_1:
        st.global.b32 [%rd1], %r5;
        ret;
    """)
    assert order[0] == "clock %r2"


def test_what_reads_the_clock_word_stays_behind_it() -> None:
    order = scheduled("end %r1 %r2\nmov.b32 %r5, %r2;\nld.global.b32 %r7, [%r5];\nret;")
    assert order[:2] == ["clock %r2", "mov.b32 %r5, %r2;"]


def test_what_writes_the_clocks_register_anew_stays_behind_it() -> None:
    order = scheduled("end %r1 %r2\nadd.s32 %r2, %r6, 4;\nld.global.b32 %r7, [%r2];\nret;")
    assert order[0] == "clock %r2"


WORDS = ["%r50", "%r51", "%r52", "%r53"]
REGISTERS = [f"%r{i}" for i in range(10, 18)]
WIDE = ["%rd20", "%rd21"]
a_word = st.sampled_from(WORDS)
a_register = st.sampled_from(REGISTERS)
an_operand = st.one_of(a_register, st.integers(0, 40).map(str))
an_offset = st.integers(0, 15).map(lambda i: 4 * i)


def lines(form: str, **parts: st.SearchStrategy[object]) -> st.SearchStrategy[list[str]]:
    """Return a strategy for instructions made from a template."""
    return st.fixed_dictionaries(parts).map(lambda values: form.format(**values).split("\n"))


user_code = st.one_of(
    lines(
        "{op} {d}, {a}, {b};",
        op=st.sampled_from(["add.s32", "sub.s32", "mul.lo.s32", "and.b32", "xor.b32", "shl.b32"]),
        d=a_register, a=a_register, b=an_operand,
    ),
    lines("@%p1 add.s32 {d}, {a}, 3;", d=a_register, a=a_register),
    lines("setp.lt.u32 %p1, {a}, {b};", a=a_register, b=an_operand),
    lines("selp.b32 {d}, {a}, {b}, %p1;", d=a_register, a=a_register, b=an_operand),
    lines("mov.b64 {w}, {{{{{a}, {b}}}}};".replace("{{{{", "{{").replace("}}}}", "}}"),
          w=st.sampled_from(WIDE), a=a_register, b=a_register),
    lines("mov.b64 {{{a}, {b}}}, {w};", w=st.sampled_from(WIDE), a=a_register, b=a_register),
    lines("mul.wide.u32 {w}, {a}, {b};", w=st.sampled_from(WIDE), a=a_register, b=an_operand),
    lines("shr.u32 {a}, {b}, 3; add.u32 {c}, {b}, 1;", a=a_register, b=a_register, c=a_register),
    lines("add.f32 {d}, {a}, {a};", d=a_register, a=st.just("%r30")),
    lines("ld.global.b32 {d}, [%rd10+{at}];", d=a_register, at=an_offset),
    lines("st.global.b32 [%rd10+{at}], {a};", a=a_register, at=an_offset),
    lines("and.b32 %r40, {a}, 60;\ncvt.u64.u32 %rd11, %r40;\nadd.s64 %rd12, %rd10, %rd11;\n"
          "ld.global.b32 {d}, [%rd12];", a=a_register, d=a_register),
    lines("{{\n.reg .u32 q;\nadd.u32 q, {a}, 1;\nmov.u32 {d}, q;\n}}", a=a_register, d=a_register),
)  # fmt: skip
a_step = st.one_of(
    st.tuples(st.just("code"), user_code),
    st.tuples(st.just("code"), user_code),
    st.tuples(st.just("start"), a_word),
    st.tuples(st.just("end"), st.tuples(a_word, an_operand)),
    st.tuples(st.just("instant"), an_operand),
    st.tuples(st.just("copy"), st.tuples(a_word, a_word)),
    st.tuples(st.just("skip"), st.integers(1, 4)),
)


def build(steps: list[tuple[str, object]], mode: OverflowMode) -> str:
    """Return a whole kernel that takes the steps, then shows all its registers in memory."""
    kernel = Kernel(mode)
    kernel.init()
    kernel.add(f"mov.b64 %rd10, {DATA:#x};", "setp.lt.u32 %p1, 1, 2;", "mov.b32 %r30, 0f3F800000;")
    kernel.add(*(f"mov.b32 {r}, {1000 + 7 * i};" for i, r in enumerate(REGISTERS)))
    kernel.add(*(f"mov.b64 {w}, {i + 5};" for i, w in enumerate(WIDE)))
    kernel.add(*(f"mov.b32 {word}, 0;" for word in WORDS))
    labels: dict[int, str] = {}
    for number, (kind, value) in enumerate(steps):
        if number in labels:
            kernel.lines.append(f"{labels.pop(number)}:")
        if kind == "code":
            kernel.add(*value)
        elif kind == "start":
            kernel.start(value)
        elif kind == "end":
            kernel.end(9, *value)
        elif kind == "instant":
            kernel.instant(8, value)
        elif kind == "copy":  # as a loop does with what it carries
            kernel.add(f"mov.b32 {value[0]}, {value[1]};")
        elif number + value not in labels:
            labels[number + value] = f"$L__T{number}"
            kernel.add(f"@%p1 bra $L__T{number};")
    for label in labels.values():
        kernel.lines.append(f"{label}:")
    shown = [*REGISTERS, *WORDS]
    kernel.add(*(f"st.global.b32 [%rd10+{64 + 4 * i}], {r};" for i, r in enumerate(shown)))
    kernel.finish()
    return kernel.text()


def memory_after(text: str, mode: OverflowMode) -> bytes:
    """Run a kernel in one thread and return all it wrote."""
    machine = Machine()
    size = abi.segment_bytes(1, 16, mode)
    segment = machine.memory.map(SEGMENT, size)
    data = machine.memory.map(DATA, 256)
    data[:] = np.arange(256)
    machine.launch(text, [SEGMENT, size - abi.LAUNCH_HEADER_BYTES], block=(1, 1, 1))
    return segment.tobytes() + data.tobytes()


@given(steps=st.lists(a_step, max_size=40), mode=st.sampled_from(OverflowMode))
@example(
    steps=[("end", ("%r50", "%r10")), ("code", ["mov.b64 {%r11, %r10}, %rd20;"])],
    mode=OverflowMode.STOP,
)
@example(  # a store that has to stay must not be taken along by its clock read
    steps=[
        ("end", ("%r50", "%r10")),
        ("code", ["and.b32 %r10, %r12, 60;", "cvt.u64.u32 %rd11, %r10;"]),
        ("code", ["add.s64 %rd12, %rd10, %rd11;", "ld.global.b32 %r10, [%rd12];"]),
    ],
    mode=OverflowMode.WRAP,
)
def test_any_program_does_the_same_when_scheduled(
    steps: list[tuple[str, object]], mode: OverflowMode
) -> None:
    before = build(steps, mode)
    after = schedule(before)
    passed = Counter(first.text for first, _ in check_rearranged(before, after) if first.is_clock)
    assert max(passed.values(), default=0) <= HANDFUL
    assert not [text for text in passed if any(word in text for word in WORDS)], "a start moved"
    assert empty_ranges(after) <= empty_ranges(before)
    assert memory_after(after, mode) == memory_after(before, mode)
