"""One kernel of a PTX text: its ways, its lines, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.errors import PatchError
from ikp.probes.points.probe_points import Level
from ikp.ptx.body import Body, PtxFlow
from ikp.ptx.spots import Spots, kind_of, title
from ikp.sass.disassembly.listing import Line
from tests.ptx.small import TURNS, kernel

pytestmark = pytest.mark.any_pins

SPIN = """\
{
.reg .pred done;
wait:
mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], %r2;
@!done bra.uni wait;
}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (kernel(TURNS).replace(" k(", " other("), "no kernel k; its kernels: other"),
        (kernel("brx.idx %r1, table;\n"), "jumps by a table table, which is not in it"),
        (kernel("T: .branchtargets A, B;\nA:\nbrx.idx %r1, T;\n"), "jumps to B, which is not in"),
        (kernel("bra nowhere;\n"), "jumps to nowhere, which is not in it"),
        (kernel("mov.u32 ikp_cur, 0;\n"), "calls ikp.init itself"),
        (kernel("mov.u32 %r1, 0;\n").removesuffix("}\n"), "ends in the middle"),
        (kernel("?;\n"), "is not known: '\\?;'"),
        ("", "no kernel k; its kernels: none"),
    ],
)
def test_what_is_not_known_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(PatchError, match=words):
        Body.read(text, "k")


def test_labels_are_of_the_scope_around_them() -> None:
    """Inlined assembly has one name for all its loops."""
    flow = PtxFlow(Body.read(kernel(SPIN * 3), "k").code)
    jumps = {at: ways[0][0] for at, ways in flow.graph.jumps.leaving.items() if len(ways) > 1}
    assert jumps == {1: 0, 3: 2, 5: 4}
    assert len(flow.bodies) == 3


TABLE = """\
{
$L_brx: .branchtargets
    $A,
    $B, $A;
@%p1 brx.idx.uni %r1, $L_brx;
$A:
add.u32 %r1, %r1, 1;
$B:
add.u32 %r1, %r1, 2;
}
"""


def test_a_table_says_where_a_jump_leads() -> None:
    """Its name, and those in it, are of their scope."""
    body = Body.read(kernel(TABLE.replace("uni ", "") + TABLE), "k")
    jumps = PtxFlow(body.code).graph.jumps.leaving
    assert jumps[0] == [(1, "%p1"), (2, "%p1"), (1, "!%p1")]
    assert jumps[3] == [(4, "%p1"), (5, "%p1"), (4, "!%p1")]
    assert body.code.instructions[3].rest == "%r1, 4, 5, 4"


@given(st.lists(st.sampled_from(["{", "}", "add.u32 %r1, %r1, 1;", SPIN, TURNS]), max_size=12))
def test_each_instruction_is_the_statement_that_it_says(pieces: list[str]) -> None:
    depth, kept = 0, []
    for piece in pieces:
        depth += {"{": 1, "}": -1}.get(piece, 0)
        if depth < 0:
            depth = 0
        else:
            # Names are of their scope, so each loop has one of its own.
            kept.append(f"{{\n{piece}}}" if piece == TURNS else piece)
    text = kernel("\n".join(kept) + "\n" + "}" * depth + "\n")
    body = Body.read(text, "k")
    assert body.text == text
    for at, each in zip(body.at, body.code.instructions, strict=True):
        assert each.opcode in body.parts[at].code
    loops = sum(SPIN in piece or TURNS in piece for piece in kept)
    assert len(PtxFlow(body.code).bodies) == loops


LINES = """\
.file 1 "/a/k.py"
.file 2 "/b/standard.py"
"""


def test_lines_tell_who_calls_whom() -> None:
    body = """\
.loc 1 63 60
add.u32 %r1, %r1, 1;
.loc 2 314 12, function_name $L, inlined_at 1 79 22
add.u32 %r1, %r1, 2;
.loc 2 287 12, function_name $L, inlined_at 2 314 12
add.u32 %r1, %r1, 3;
.loc 1 0 5
add.u32 %r1, %r1, 4;
.loc 1 44 26 // k.py:44:26 @[ k.py:63:60 ]
add.u32 %r1, %r1, 5;
"""
    code = Body.read(kernel(body) + LINES, "k").code
    k, library = "/a/k.py", "/b/standard.py"
    assert [each.lines for each in code.instructions[:5]] == [
        (Line(k, 63),),
        (Line(library, 314), Line(k, 79)),
        (Line(library, 287), Line(library, 314), Line(k, 79)),
        (),
        (Line(k, 44), Line(k, 63)),
    ]


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", "wgmma"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma"),
        ("tcgen05.mma.cta_group::1.kind::f16", "tcgen05.mma"),
        ("wgmma.wait_group.sync.aligned", "wgmma wait"),
        ("cp.async.cg.shared.global", "cp.async"),
        ("cp.async.wait_group", "cp.async wait"),
        ("cp.async.bulk.wait_group.read", "TMA store wait"),
        ("cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes", "TMA load"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", "TMA store"),
        ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add", "TMA store"),
        ("cp.async.bulk.shared::cluster.global.mbarrier", "TMA load"),
        ("bar.sync", "barrier"),
        ("barrier.cta.red.popc.aligned", "barrier"),
        ("mbarrier.try_wait.parity.shared::cta.b64", "mbarrier wait"),
        ("ld.global.v4.b32", "load"),
        ("ld.relaxed.gpu.global.u32", "load"),
        ("ld.b32", "load"),
        ("st.global.b16", "store"),
        *[(each, "") for each in ("ld.shared.b32", "ld.param.b64", "ld.const.b32", "bar.arrive")],
        *[(each, "") for each in ("st.shared.b32", "bar.warp.sync", "cp.async.commit_group")],
        *[(each, "") for each in ("cp.async.bulk.commit_group", "tcgen05.commit", "mbarrier.init")],
    ],
)
def test_operations_are_known_by_their_names(opcode: str, expected: str) -> None:
    assert title(opcode) == expected
    assert (kind_of(opcode) is None) == (expected == "")


def test_a_loop_that_only_tests_a_barrier_is_a_wait() -> None:
    places = Spots(Body.read(kernel("mov.b32 %r1, 0;\n" + SPIN + TURNS), "k")).at(Level.OPS)
    assert [place.name for place in places] == ["k", "mbarrier wait", "loop", "iteration", "load"]
