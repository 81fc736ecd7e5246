"""Bodies that a diverged warp runs as one (WARPSYNC.COLLECTIVE): nothing is put into them."""

from __future__ import annotations

from functools import cache

import pytest

from ikp.errors import PatchError
from ikp.probes.patch import patch
from ikp.probes.points.probe_points import Level, ProbeRegions
from ikp.sass.control_flow.flow import collective_bodies
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.reading import check_targets
from ikp.sass.insertion.displacement import Insertion
from ikp.sass.insertion.insert import insert
from tests.sass.assembled import cubin
from tests.sass.readback import NOP, assert_reads_back, code_of, codes

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

PTX = """
.visible .entry k(.param .u64 p, .param .u32 n) .reqntid 128
{
 .reg .u64 a<4>; .reg .u32 r<12>; .reg .pred P<4>;
 ld.param.u64 a0, [p]; ld.param.u32 r0, [n];
 mov.u32 r1, %tid.x; mul.wide.u32 a1, r1, 4; add.u64 a0, a0, a1; mov.u32 r4, 0;
 setp.ge.u32 P2, r1, r0; @P2 bra D;
L:
 ld.volatile.global.u32 r2, [a0]; setp.ne.u32 P3, r2, 0; @P3 bra L;
 shfl.sync.bfly.b32 r6, r2, 1, 31, -1;
 barrier.sync 0;
 st.global.u32 [a0+4], r6;
 add.u32 r4, r4, 1; setp.lt.u32 P1, r4, r0; @P1 bra L;
D:
 shfl.sync.bfly.b32 r4, r4, 1, 31, -1;
 barrier.sync 0;
 st.global.u32 [a0], r4;
 ret;
}
"""
"""A barrier and a shuffle behind a loop that threads leave by themselves, as ``grid.sync()`` is."""


@cache
def kernel() -> bytes:
    return cubin(PTX, "sm_90a")


def bodies(image: bytes) -> list[tuple[int, int]]:
    """Return each WARPSYNC.COLLECTIVE and its ENDCOLLECTIVE, by their indices."""
    code = codes(image)["k"]
    begins = code.having(lambda opcode: opcode.startswith("WARPSYNC.COLLECTIVE"))
    return list(zip(begins, code.of("ENDCOLLECTIVE"), strict=True))


def test_both_forms_name_where_threads_go_on() -> None:
    code = codes(kernel())["k"]
    forms = {code.instructions[at].opcode for at, _ in bodies(kernel())}
    assert forms == {"WARPSYNC.COLLECTIVE", "WARPSYNC.COLLECTIVE.ALL"}
    assert len(bodies(kernel())) == 4
    inside = collective_bodies(code)
    assert inside == {n: at for at, end in bodies(kernel()) for n in range(at + 1, end + 1)}


def test_targets_follow_what_is_put_before_and_behind() -> None:
    made, inside = Cubin.read(kernel()), collective_bodies(codes(kernel())["k"])
    count = len(made.kernel("k").words)
    outside = [n for n in range(1, count + 1) if n not in inside]
    to = insert(made, "k", [Insertion(n, (NOP,) * 3) for n in outside])
    assert_reads_back(kernel(), made.write(), {"k": to})


def test_nothing_can_be_put_into_a_body() -> None:
    plain = kernel()
    for at in collective_bodies(codes(plain)["k"]):
        made = Cubin.read(plain)
        with pytest.raises(PatchError, match="into a collective of k"):
            insert(made, "k", [Insertion(at, (NOP,))])
        assert made.write() == plain


@pytest.mark.parametrize("detail", ["kernel", "loops", "waits", "ops"])
def test_a_recorded_kernel_has_its_bodies_as_they_were(detail: str) -> None:
    made = patch(kernel(), "k", detail=detail)
    before, after = codes(kernel())["k"].instructions, codes(made.cubin)["k"].instructions
    for (old, end), (new, ended) in zip(bodies(kernel()), bodies(made.cubin), strict=True):
        body = [each.text for each in before[old + 1 : end + 1]]
        assert [each.text for each in after[new + 1 : ended + 1]] == body
        assert after[new].targets and code_of(made.cubin, "k").flow.code.labels[
            after[new].targets[0]
        ] in range(ended + 1, len(after))


def test_a_barrier_in_a_body_has_no_range() -> None:
    flow = code_of(kernel(), "k").flow
    places = ProbeRegions(flow)
    inside = collective_bodies(flow.code)
    held = {at for each in places.at(Level.OPS) for at in each.holds}
    assert held.isdisjoint(inside)
    refused = {at: why for each, why in places.refused for at in each.holds}
    assert all("collective" in refused[at] for at in inside if at in refused)
    assert refused.keys() & inside.keys()


def test_a_target_that_the_bits_do_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As WARPSYNC.COLLECTIVE.ALL was, when its opcode was not known to name a place."""
    made = Cubin.read(kernel())
    code = codes(kernel())["k"]
    check_targets(made, made.kernel("k"), code)
    monkeypatch.setattr("ikp.sass.cubins.instruction.WARPSYNC", (0x348,))
    with pytest.raises(PatchError, match=r"not known here: 'WARPSYNC.COLLECTIVE.ALL"):
        patch(kernel(), "k", detail="kernel")
