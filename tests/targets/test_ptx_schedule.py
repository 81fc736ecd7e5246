"""Where the scheduler puts clock reads and stores, and that no program does anything else by it."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import OverflowMode
from ikp.targets.ptx_schedule import MAX_PENDING, schedule
from tests.targets.ptx_kernel import Kernel
from tests.targets.ptx_machine import Machine
from tests.targets.ptx_order import check_rearranged, empty_ranges

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
    assert order.index("bar.sync 0;") < order.index("store %r1") < order.index(writer)


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


def test_a_clock_moves_past_address_arithmetic() -> None:
    order = scheduled("""
        bar.sync 0;
        start %r1
        shl.b32 %r5, %r6, 2;
        cvt.u64.u32 %rd2, %r5;
        add.s64 %rd3, %rd1, %rd2;
        ld.global.b32 %r7, [%rd3];
        end %r1 %r2
        ret;
    """)
    assert order[:6] == [
        "bar.sync 0;",
        "shl.b32 %r5, %r6, 2;",
        "cvt.u64.u32 %rd2, %r5;",
        "add.s64 %rd3, %rd1, %rd2;",
        "clock %r1",
        "ld.global.b32 %r7, [%rd3];",
    ]


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
    order = scheduled("\n".join(["start %r1", *kept, use, "end %r1 %r2", "ret;"]))
    assert order[: len(kept) + 1] == [*kept, "clock %r1"]


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
    ],
)
def test_a_clock_never_passes_work(work: str) -> None:
    use = "st.global.b32 [%rd1], %r5;"
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
    order = scheduled(f"start %r1\nxor.b32 %r5, %r6, %r7;\n{use}\nend %r1 %r2\nret;")
    assert order[:2] == ["clock %r1", "xor.b32 %r5, %r6, %r7;"]


FENCE, ARITHMETIC = "wgmma.fence.sync.aligned;", "add.s64 %rd4, %rd6, 2;"
MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r30}, %rd4, %rd5, 1, 1, 1, 0, 1;"


def test_a_start_passes_the_fence_before_the_multiplications_and_their_descriptors() -> None:
    lines = ["start %r3", FENCE, ARITHMETIC, MMA, "end %r3 %r4", "ret;"]
    assert scheduled("\n".join(lines))[:4] == [FENCE, ARITHMETIC, "clock %r3", MMA]


def test_an_end_stays_before_the_fence() -> None:
    lines = ["end %r1 %r2", "start %r3", FENCE, ARITHMETIC, MMA, "end %r3 %r4", "ret;"]
    order = scheduled("\n".join(lines))
    assert order[:5] == ["clock %r2", FENCE, ARITHMETIC, "clock %r3", MMA]


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


BARRIER = "bar.sync \t0, 256;"


@pytest.mark.parametrize(
    ("lines", "barriers"),
    [
        ([BARRIER, "end %r1 %r2", BARRIER], 1),
        ([BARRIER, "end %r1 %r2", "start %r3", "add.s32 %r5, %r6, 4;", BARRIER], 1),
        ([BARRIER, BARRIER], 2),  # the user's own
        ([BARRIER, "end %r1 %r2", "bar.sync 1, 256;"], 2),
        ([BARRIER, "end %r1 %r2", "ld.shared.b32 %r5, [%r6];", BARRIER], 2),
        ([BARRIER, "end %r1 %r2", "$L__BB0_1:", BARRIER], 2),
        ([BARRIER, "end %r1 %r2", "@%p1 bra $L__BB0_1;", BARRIER], 2),
        ([BARRIER, "end %r1 %r2", "@%p1 bar.sync 0, 256;", BARRIER], 3),
    ],
)
def test_a_record_between_two_barriers_does_not_keep_both(lines: list[str], barriers: int) -> None:
    text = program("\n".join([*lines, "st.shared.b32 [%r6], %r7;", "ret;"]))
    order = shorthand(schedule(text))  # not a rearrangement: a line is left out
    assert sum("bar.sync" in line for line in order) == barriers


def test_arithmetic_used_both_ways_is_work() -> None:
    order = scheduled("""
        start %r1
        add.s32 %r5, %r6, 4;
        ld.global.b32 %r7, [%r5];
        st.global.b32 [%rd1], %r5;
        end %r1 %r2
        ret;
    """)
    assert order[0] == "clock %r1"


def test_a_use_in_a_later_block_counts() -> None:
    order = scheduled("""
        start %r1
        add.s32 %r5, %r6, 4;
        ld.global.b32 %r7, [%r5];
        end %r1 %r2
        $L__BB0_1:
        st.global.b32 [%rd1], %r5;
        ret;
    """)
    assert order[0] == "clock %r1"


def test_a_range_of_address_arithmetic_alone_stays_around_it() -> None:
    text = """
        start %r1
        add.s32 %r5, %r6, 4;
        end %r1 %r2
        ld.global.b32 %r7, [%r5];
        ret;
    """
    order = scheduled(text)
    assert order.index("clock %r1") < order.index("add.s32 %r5, %r6, 4;") < order.index("clock %r2")


def test_what_reads_the_clock_word_stays_behind_it() -> None:
    order = scheduled("""
        start %r1
        mov.b32 %r5, %r1;
        ld.global.b32 %r7, [%r5];
        ret;
    """)
    assert order[:2] == ["clock %r1", "mov.b32 %r5, %r1;"]


def test_what_uses_the_register_before_stays_before() -> None:
    """Where a loop carries a token, a start writes a register that the body has used before."""
    order = scheduled("""
        bar.sync 0;
        start %r1
        add.s32 %r1, %r6, 4;
        ld.global.b32 %r7, [%r1];
        ret;
    """)
    assert order[:3] == ["bar.sync 0;", "clock %r1", "add.s32 %r1, %r6, 4;"]


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
    check_rearranged(before, after)
    assert empty_ranges(after) <= empty_ranges(before)
    assert memory_after(after, mode) == memory_after(before, mode)
