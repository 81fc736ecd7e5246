"""Calls that end a kernel, told from those that may come back."""

from __future__ import annotations

import pytest

from ikp.errors import PatchError
from ikp.probes.patch import patch
from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.idioms import _behind, _called, asserts, called
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.reading import read
from tests.sass import module
from tests.sass.assembled import cubin
from tests.sass.texts import sass

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

PTX = """
.extern .func __assertfail
 (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 text[4] = {104, 105, 10, 0};
.visible .entry k(.param .u64 p) .reqntid 128
{
 .reg .b64 a, t; .reg .b32 r, i; .reg .pred q;
 ld.param.u64 a, [p]; ld.global.u32 r, [a]; setp.lt.s32 q, r, 1000; @q bra FINE;
 mov.u64 t, text; cvta.global.u64 t, t;
 { .param .b64 x; .param .b64 y; .param .b32 z; .param .b64 v; .param .b64 w;
 st.param.b64 [x], t; st.param.b64 [y], t; st.param.b32 [z], 7; st.param.b64 [v], t;
 st.param.b64 [w], 1;
 call.uni __assertfail, (x, y, z, v, w); }
FINE:
 add.u32 r, r, 5; st.global.u32 [a], r; ret;
}
"""


def read_with(data: bytes, name: str) -> Liveness:
    code = next(each for each in read(data) if each.flow.code.name == name)
    return Liveness(code.flow, asserts(Cubin.read(data), code.flow))


def test_what_an_assert_calls_ends_the_kernel() -> None:
    found = read_with(cubin(PTX, "sm_90a"), "k")
    assert len(found.asserts) == 1 and not found.leaving_calls
    assert Liveness(found.flow).leaving_calls


def test_what_stands_behind_an_assert_alone_never_runs() -> None:
    """Torch's reductions assert twice in a row: the second address was begun before the first."""
    asserting = PTX[PTX.index(" { .param") : PTX.index("FINE:")]
    found = read_with(cubin(PTX.replace("FINE:", f"{asserting}\nFINE:"), "sm_90a"), "k")
    calls = sorted(found.flow.graph.jumps.calls)
    assert len(calls) == 2 and found.asserts == set(calls)
    data = cubin(PTX, "sm_90a")
    one = next(each for each in read(data) if each.flow.code.name == "k").flow
    (at,) = one.graph.jumps.calls
    assert not _behind(one, at, set())


@pytest.mark.parametrize(("more", "ends"), [("", True), ("st.global.u32 [%rd0+4], %r1;", False)])
def test_a_print_in_front_of_a_trap_ends_the_kernel(more: str, ends: bool) -> None:
    data = module.cubin("sm_90a", module.PTX.replace("\nDONE:", f"\n{more} trap;\nDONE:"))
    found = read_with(data, "prints")
    assert not found.asserts and bool(found.leaving_calls) != ends


@pytest.mark.parametrize(
    ("between", "ends"),
    [("S2R R17, SR_TID.X", True), ("LDG.E R4, desc[UR4][R2.64]", False), ("EXIT", False)],
)
def test_only_moves_stand_before_that_trap(between: str, ends: bool) -> None:
    code = sass("CALL.ABS.NOINC R2", between, "BPT.TRAP 0x1", "EXIT")
    assert bool(Liveness(Flow(code)).leaving_calls) != ends


def test_any_other_function_may_come_back() -> None:
    found = read_with(module.cubin("sm_90a"), "prints")
    assert not found.asserts and found.leaving_calls


@pytest.mark.parametrize("function", ["__cudaCDP2LaunchDeviceV2", "_Z4workPf", "__assertfail"])
def test_a_call_by_symbol_says_what_it_calls(function: str) -> None:
    """As separately compiled code has it: dynamic parallelism, -rdc, -G."""
    made = Cubin.read(module.cubin("sm_90a"))
    flow = Flow(sass(f"CALL.ABS.NOINC `({function})", "EXIT"))
    assert called(made, flow, 0) == function and not asserts(made, flow)
    assert Liveness(flow).leaving_calls == [0]


@pytest.mark.parametrize(
    ("between", "known"),
    [
        (("MOV R5, R9",), True),  # beside the register that holds the offset
        (("MOV R4, R9",), False),
        (("MOV R3, R9",), True),
        (("@P0 MOV R4, 0x10",), False),
    ],
)
def test_a_call_goes_to_the_address_that_was_loaded_last(
    between: tuple[str, ...], known: bool
) -> None:
    lines = ("MOV R4, 0x10", *between, "LDC.64 R2, c[0x4][R4]", "CALL.ABS.NOINC R2", "EXIT")
    flow = Flow(sass(*lines))
    assert _called(flow, len(lines) - 2) == (0x10 if known else None)
    late = (*lines[:-2], "MOV R3, R9", *lines[-2:])
    assert _called(Flow(sass(*late)), len(late) - 2) is None, "half of it is another one"


def test_a_kernel_that_asserts_is_recorded_and_one_that_prints_is_not() -> None:
    assert patch(cubin(PTX, "sm_90a"), "k", detail="ops").names[0] == "k"
    with pytest.raises(PatchError, match=r"not its own \(vprintf\).*Take it out"):
        patch(module.cubin("sm_90a"), "prints")
