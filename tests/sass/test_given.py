"""Registers that products take, and stores of records that still read them."""

from __future__ import annotations

import pytest

from ikp.probes.patch import patch
from tests.sass.assembled import cubin
from tests.sass.hazards import hazards
from tests.sass.readback import code_of

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

DESCRIPTOR = 0x4000004000010000


def ptx(columns: int, held: int) -> str:
    """Return a kernel that copies a tile to shared memory and multiplies it by itself.

    Args:
        columns: of the product, half of them in each thread.
        held: how many values each thread keeps meanwhile.
    """
    many, kept = columns // 2, range(held)
    made = ", ".join(f"f{n}" for n in range(many))
    stores = " ".join(f"st.global.f32 [b+{512 * n}], f{n};" for n in range(many))
    return f"""
.extern .shared .align 1024 .b8 tile[];
.visible .entry k(.param .u64 x, .param .u64 y) .reqntid 128
{{
 .reg .u64 a, b, o, d; .reg .u32 t, s, v<4>, h<{held}>; .reg .f32 f<{many}>;
 ld.param.u64 a, [x]; ld.param.u64 b, [y];
 mov.u32 t, %tid.x; mul.wide.u32 o, t, 16; add.u64 a, a, o; add.u64 b, b, o;
 mov.u32 s, tile; mad.lo.u32 s, t, 16, s;
 {" ".join(f"ld.global.u32 h{n}, [b+{512 * n}];" for n in kept)}
 ld.global.v4.u32 {{v0, v1, v2, v3}}, [a];
 st.shared.v4.u32 [s], {{v0, v1, v2, v3}};
 fence.proxy.async.shared::cta; bar.sync 0;
 mov.u64 d, {DESCRIPTOR};
 wgmma.fence.sync.aligned;
 wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{made}}}, d, d, 0, 1, 1, 0, 0;
 wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
 {stores}
 {" ".join(f"st.global.u32 [a+{512 * n}], h{n};" for n in kept)}
 ret;
}}
"""


@pytest.mark.parametrize(("columns", "held"), [(32, 22), (64, 31), (128, 13), (256, 16)])
def test_a_store_has_read_its_registers_before_a_warp_gives_them_to_products(
    columns: int, held: int
) -> None:
    """Two kernels of libraries faulted: products overwrote an address, waited for too late."""
    plain = cubin(ptx(columns, held), "sm_90a")
    made = code_of(patch(plain, "k", detail="waits").cubin, "k")
    assert any(each.opcode == "WARPGROUP.ARRIVE" for each in made.flow.code.instructions)
    assert hazards(made) == hazards(code_of(plain, "k"))
