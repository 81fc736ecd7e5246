"""Kernels with atomics of 16 bits, which ptxas makes of 32-bit ones."""

from __future__ import annotations

import pytest

from ikp.errors import PatchError
from ikp.probes.patch import patch
from ikp.sass.cubins.attributes import AttributeCode
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.dataflow.idioms import addressed
from ikp.sass.disassembly.effects import R
from tests.sass.assembled import cubin
from tests.sass.hazards import hazards
from tests.sass.readback import code_of

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

KERNEL = """
.visible .entry {name}(.param .u64 p, .param .u64 q)
{{
 .reg .u64 a, b; .reg .b16 h, o; .reg .b32 t, s, i; .reg .pred c; .shared .align 4 .b8 m[64];
 ld.param.u64 a, [p]; mov.u32 t, %tid.x; mul.wide.u32 b, t, 2; add.u64 a, a, b;
 ld.global.b16 h, [a+64]; mov.u32 s, m; mad.lo.u32 s, t, 2, s; mov.u32 i, 0;
L:
 {op}, h; st.global.b16 [a+2], o;
 add.u32 i, i, 1; setp.lt.u32 c, i, t; @c bra L;
 bar.sync 0; ld.global.b16 h, [a+256]; st.global.b16 [a+128], h;
 ret;
}}
"""
OPS = {
    "global_add": "atom.global.add.noftz.f16 o, [a]",
    "generic_add": "atom.add.noftz.f16 o, [a]",
    "shared_add": "atom.shared.add.noftz.f16 o, [s]",
    "cas": "atom.global.cas.b16 o, [a], h",
}
PTX = "".join(KERNEL.format(name=name, op=op) for name, op in OPS.items())
"""A kernel of each: to disassemble four takes no longer than one."""


def listed(data: bytes, name: str) -> list[tuple[int, int]]:
    """Return the instructions that the attribute lists, each with its register."""
    (attribute,) = (each for each in Cubin.read(data).kernel(name).attributes if each.code == 0x2E)
    words = attribute.words
    return [(at // BYTES, register) for at, register in zip(words[::2], words[1::2], strict=True)]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_what_is_listed_is_the_word_around_and_the_address_meant(target: str, op: str) -> None:
    """What ptxas writes, which is all that is known of it."""
    data = cubin(PTX, target)
    instructions = code_of(data, op).flow.code.instructions
    found = listed(data, op)
    assert len(found) == 2
    for at, register in found:
        assert instructions[at].op in ("LDG", "LD", "LDS", "ATOMG", "ATOM", "ATOMS")
        (aligned,) = (i for i in instructions if i.op == "LOP3" and "0xfffffffd" in i.text)
        assert aligned.operands[1].removesuffix(".reuse") == f"R{register}"
        assert f"[{aligned.operands[0]}" in instructions[at].text


@pytest.mark.parametrize("op", OPS)
def test_the_list_follows_and_its_registers_stay(op: str) -> None:
    plain = cubin(PTX, "sm_90a")
    made = patch(plain, op, detail="ops")
    before, after = code_of(plain, op), code_of(made.cubin, op)
    olds, news = (each.flow.code.instructions for each in (before, after))
    assert len(made.names) > 3 and hazards(after) == hazards(before)
    (masking,) = (at for at, i in enumerate(news) if i.op == "LOP3" and "0xfffffffd" in i.text)
    for (old, register), (new, kept) in zip(listed(plain, op), listed(made.cubin, op), strict=True):
        assert (olds[old].text, register) == (news[new].text, kept)
        between = after.effects[masking:new]
        assert not any(each.writes >> R.first + register & 1 for each in between)


def test_it_counts_as_read_there() -> None:
    data = cubin(PTX, "sm_90a")
    kernel = Cubin.read(data).kernel("global_add")
    instructions = code_of(data, kernel.name).flow.code.instructions
    found = addressed(kernel, instructions)
    assert found == {at: 1 << R.first + register for at, register in listed(data, kernel.name)}
    (attribute,) = (
        each for each in kernel.attributes if each.code == AttributeCode.EMULATED_ATOMICS
    )
    attribute.value = bytes(8)
    with pytest.raises(PatchError, match="lists emulated atomics where there are none"):
        addressed(kernel, instructions)
