"""Small kernels through the assembler, and lines that only PTX has right."""

from __future__ import annotations

import pytest

from ikp.probes.points.lines_of import (
    barrier_lines,
    callers,
    load_lines,
    product_lines,
    wait_lines,
)
from ikp.probes.points.probe_points import ProbeRegions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Line
from tests.probes.test_places import alternates
from tests.sass.compiled import assembled
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

START = """
    .reg .b64 %a, %b; .reg .b32 %t, %n, %v, %w; .reg .pred %p, %q; .reg .f32 %f, %g;
    .shared .align 8 .b64 bar;
    ld.param.u64 %a, [p];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %b, %t, 4;
    add.u64 %a, %a, %b;
"""
SPIN = """
    mov.u32 %n, bar;
    wait: mbarrier.try_wait.parity.shared.b64 %p, [%n], 0;
    @%p bra done;
    bra wait;
    done: st.global.b32 [%a], %t;
    ret;
"""
APART = """
    ld.global.b32 %v, [%a];
    setp.lt.s32 %p, %v, 100;
    @!%p bra over;
    inside: ld.global.b32 %w, [%a + 8];
    add.s32 %v, %v, %w;
    setp.gt.s32 %q, %w, 7;
    @%q bra inside;
    over: bar.sync 0;
    st.global.b32 [%a], %v;
    ret;
"""


@pytest.mark.compiled
def test_a_wait_for_a_barrier_in_shared_memory_is_its_loop() -> None:
    flow = assembled(START + SPIN).flow
    found = ProbeRegions(flow).all
    (wait,) = (place for place in found if place.kind == "mbarrier wait")
    inside = [i.op for i in flow.code.instructions[wait.start.index : wait.end.index + 1]]  # type: ignore[union-attr]
    assert "SYNCS" in inside
    alternates(flow, found)


@pytest.mark.compiled
def test_where_threads_may_be_apart_nothing_is_marked() -> None:
    found = ProbeRegions(assembled(START + APART).flow)
    loads = [place for place in found.all if place.kind in ("load", "load wait")]
    assert [place.kind for place in loads] == ["load", "load wait"]
    assert {why for _, why in found.refused} == {"threads of one warp may be apart there"}
    assert [place.kind for place in found.all][-2:] == ["barrier", "store"]


PTX = """\
.file 1 "/x/k.py"
.visible .entry other() { .loc 1 1 1
\twgmma.mma_async.sync {};
}
.visible .entry k(
)
{
\t.loc\t1 93 16
\t// begin inline asm
\t.loc\t1 93 16
\tmov.u32 %r7, 0x0;
\t.loc\t1 94 16
\t@%p1 ld.global.b32 { %r7 }, [ %rd10 + 0 ];
\t// end inline asm
\t.loc\t1 97 16
\twgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%r143}, %rd19, %rd20;
\tld.global.b32 %r8, [ %rd10 + 0 ];
}
"""
CODE = sass("HGMMA.64x8x16.F32 R24, gdesc[UR4], R24, gsb0", "EXIT")


def test_the_kth_product_has_the_line_of_the_kth_in_the_ptx() -> None:
    assert product_lines(CODE, PTX) == {0: (Line("/x/k.py", 97),)}
    assert product_lines(CODE, PTX.replace("wgmma", "other")) == {}
    assert product_lines(sass("EXIT"), PTX) == {}


def test_a_load_in_inline_assembly_has_the_line_before_it() -> None:
    assert load_lines(CODE, PTX) == {
        Line("/x/k.py", 94): Line("/x/k.py", 93),
        Line("/x/k.py", 97): Line("/x/k.py", 97),
    }
    both = PTX.replace(".loc\t1 97", ".loc\t1 94")
    assert load_lines(CODE, both) == {}, "it can't be told which of the two is meant"


CALLED = """\
.file 1 "/x/k.py"
.file 2 "/x/helpers.py"
.visible .entry k(
)
{
\t.loc\t1 20 32769, function_name $L__info_string1, inlined_at 1 40 32768
\t.loc\t2 7 12, function_name $L__info_string0, inlined_at 1 20 32769
\twgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%r1}, %rd1, %rd2;
\t.loc\t1 20 32770, function_name $L__info_string1, inlined_at 1 50 32771
\t.loc\t2 7 12, function_name $L__info_string0, inlined_at 1 20 32770
\t// begin inline asm
\t{
\t.loc\t2 9 12, function_name $L__info_string0, inlined_at 1 20 32770
\tLAB_WAIT:
\tmbarrier.try_wait.parity.shared.b64 P1, [%r1], %r2, 10000000;
\t}
\t// end inline asm
\twgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%r1}, %rd1, %rd2;
}
"""


def test_a_products_calls_are_those_that_its_place_is_inlined_at() -> None:
    """The same line of the same helper, come to by two calls: their columns tell them apart."""
    products = ("HGMMA.64x8x16.F32 R24, gdesc[UR4], R24, gsb0",) * 2
    helper = Line("/x/helpers.py", 7)
    assert product_lines(sass(*products, "EXIT"), CALLED) == {
        0: (helper, Line("/x/k.py", 20), Line("/x/k.py", 40)),
        1: (helper, Line("/x/k.py", 20), Line("/x/k.py", 50)),
    }


def test_a_wait_in_inline_assembly_has_the_line_before_it() -> None:
    given, right = Line("/x/helpers.py", 9), Line("/x/helpers.py", 7)
    assert wait_lines(CODE, CALLED) == {given: right}
    assert wait_lines(CODE, PTX) == {}


INLINED = """\
.file 1 "/x/k.py"
.file 2 "/triton/language/standard.py"
.file 3 "/x/one/twice.py"
.file 4 "/x/two/twice.py"
.visible .entry other(
.loc 1 3 1 // k.py:3:1 @[ k.py:70:2 ]
.visible .entry k(
.loc 1 60 5 // k.py:60:5
.loc 1 44 26 // k.py:44:26 @[ k.py:63:60 ]
.loc 1 45 9 // k.py:45:9 @[ k.py:63:60 ]
.loc 1 45 12 // k.py:45:12 @[ k.py:64:60 ]
.loc 2 170 27 // standard.py:170:27 @[ standard.py:191:40 @[ k.py:44:41 @[ k.py:63:60 ] ] ]
.loc 3 5 1 // twice.py:5:1 @[ k.py:63:60 ]
.loc 1 39 0 // k.py:39 @[ k.py:0 ]
.loc 1 46 0 // k.py:46 @[ k.py:65:3 ]
"""


SUMS = """\
.file 1 "/x/k.py"
.file 2 "/triton/language/standard.py"
.visible .entry k(
.loc 2 293 36 // standard.py:293:36 @[ k.py:68:20 ]
bar.sync 0;
.loc 1 69 5 // k.py:69:5
@%p1 bar.sync 1, 64;
.loc 2 293 36 // standard.py:293:36 @[ k.py:70:30 ]
barrier.sync 0;
"""


def test_barriers_of_a_function_called_twice_are_told_apart_by_their_order() -> None:
    """Two sums of Liger's group norm: all their barriers were "@standard.py:293"."""
    library, at = (
        '//## File "/triton/language/standard.py", line 293',
        '//## File "/x/k.py", line 69',
    )
    lines = (library, "BAR.SYNC 0x0", at, "BAR.SYNC 0x1, 0x40", library, "BAR.SYNC 0x0", "EXIT")
    first, second = Line("/x/k.py", 68), Line("/x/k.py", 70)
    line = Line("/triton/language/standard.py", 293)
    assert barrier_lines(sass(*lines), SUMS) == {0: (line, first), 2: (line, second)}
    names = [place.name for place in ProbeRegions(Flow(sass(*lines)), SUMS).all]
    assert names[1:] == ["barrier @k.py:68", "barrier @k.py:69", "barrier @k.py:70"]
    assert barrier_lines(sass(*lines[2:]), SUMS) == {}, "one was removed: which is not known"
    moved = (*lines[2:4], *lines[:2], *lines[4:])
    assert barrier_lines(sass(*moved), SUMS) == {}, "they are not in that order"
    inlined = f'{library} inlined at "/x/k.py", line 60', '//## File "/x/k.py", line 60'
    called = (*inlined, *lines[1:4], *inlined, *lines[5:])
    assert barrier_lines(sass(*called), SUMS) == {0: (line, first), 2: (line, second)}, (
        "the code may name a caller, too"
    )


def test_who_calls_an_inlined_function_is_read_from_comments() -> None:
    found = callers(sass("NOP", "EXIT"), INLINED)
    at, library = "/x/k.py", "/triton/language/standard.py"
    assert found == {
        Line(at, 44): (Line(at, 44), Line(at, 63)),
        Line(at, 46): (Line(at, 46), Line(at, 65)),
        Line(library, 170): (Line(library, 170), Line(library, 191), Line(at, 44), Line(at, 63)),
    }
