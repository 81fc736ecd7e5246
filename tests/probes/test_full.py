"""Kernels that use all registers that a thread can have: what is recorded of them, what is told."""

from __future__ import annotations

import pytest

from ikp.errors import PatchError
from ikp.probes.patch import patch
from ikp.sass.cubins.cubin import Cubin
from tests.sass.assembled import cubin
from tests.sass.hazards import hazards
from tests.sass.readback import code_of

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


def ptx(held: int, *, stored: bool) -> str:
    """Return a kernel with a loop in which each thread holds so many values all the time.

    Args:
        held: how many.
        stored: whether each is stored at the end; else their sum is.
    """
    numbers = range(held)
    stores = " ".join(f"st.global.f32 [b+{512 * n}], f{n};" for n in numbers)
    summed = " ".join(f"add.f32 v, v, f{n};" for n in numbers) + " st.global.f32 [b], v;"
    return f"""
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z, .param .u32 m) .reqntid 128
{{
 .reg .u64 a, b, c, o; .reg .u32 t, i, n; .reg .pred q; .reg .f32 v, f<{held}>;
 ld.param.u64 a, [x]; ld.param.u64 b, [y]; ld.param.u64 c, [z]; ld.param.u32 n, [m];
 mov.u32 t, %tid.x; mul.wide.u32 o, t, 4;
 add.u64 a, a, o; add.u64 b, b, o; add.u64 c, c, o; mov.u32 i, 0;
 {" ".join(f"ld.global.f32 f{n}, [a+{512 * n}];" for n in numbers)}
L:
 ld.global.f32 v, [c]; add.u64 c, c, 512;
 {" ".join(f"fma.rn.f32 f{n}, f{n}, v, f{(7 * n + 1) % held};" for n in numbers)}
 bar.sync 0; add.u32 i, i, 1; setp.lt.u32 q, i, n; @q bra L;
 {stores if stored else summed}
 ret;
}}
"""


def test_what_has_no_registers_is_left_out_with_a_reason_and_all_else_is_recorded() -> None:
    plain = cubin(ptx(245, stored=False), "sm_90a")
    made = patch(plain, "k", detail="ops")
    assert made.registers == (255, 255)
    assert made.names == ("k", "iteration", "loop", "store")
    left = dict(note.split(" is not recorded: ") for note in made.notes)
    assert left.keys() == {"load x245", "load", "barrier", "wait for load"}
    assert all(why.endswith("free there.") for why in left.values())
    assert hazards(code_of(made.cubin, "k")) == hazards(code_of(plain, "k"))


@pytest.mark.parametrize("held", [248, 260])
def test_where_a_loop_leaves_nothing_free_the_kernel_itself_is_recorded(held: int) -> None:
    """With 260, some are spilled."""
    plain = cubin(ptx(held, stored=False), "sm_90a")
    assert Cubin.read(plain).kernel("k").registers == 255
    made = patch(plain, "k", detail="loops")
    assert made.names == ("k",)
    assert [note.partition(" is not")[0] for note in made.notes] == ["loop", "iteration"]
    assert hazards(code_of(made.cubin, "k")) == hazards(code_of(plain, "k"))


@pytest.mark.parametrize("held", [210, 238, 242])
def test_the_end_is_stored_word_by_word_where_stores_may_still_read_the_rest(held: int) -> None:
    """Nothing tells when the last stores have read their registers, so these are not used."""
    plain = cubin(ptx(held, stored=True), "sm_90a")
    made = patch(plain, "k", detail="kernel")
    code = code_of(made.cubin, "k")
    assert hazards(code) == hazards(code_of(plain, "k"))
    at = next(n for n, each in enumerate(code.flow.code.instructions) if each.op == "EXIT")
    ours = [each for each in code.flow.code.instructions[:at] if _is_ours(each.address, made.ours)]
    stores = [each for each in ours if each.op == "STG"][-8:]
    assert [each.opcode for each in stores] == ["STG.E"] * 8
    assert len({each.operands[-1] for each in stores}) == 4


def _is_ours(address: int, ours: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= address < end for first, end in ours)


def test_where_stores_may_still_read_all_it_runs_plain_and_says_why() -> None:
    with pytest.raises(PatchError, match=r"no registers are free .* its last stores may still"):
        patch(cubin(ptx(250, stored=True), "sm_90a"), "k", detail="kernel")
