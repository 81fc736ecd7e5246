"""Whole kernels with records put into them: what nvdisasm reads back, and what may go wrong."""

from __future__ import annotations

import re
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.errors import PatchError
from ikp.probes.code.entry_code import CELL
from ikp.probes.made_patch import Patch
from ikp.probes.patch import _unoptimised, patch
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.free_registers import RESERVED
from ikp.sass.dataflow.register_handover import registers_at
from ikp.sass.disassembly.effects import R
from ikp.sass.disassembly.listing import Instruction
from tests.sass.assembled import cubin
from tests.sass.compiled import code
from tests.sass.hazards import hazards
from tests.sass.readback import code_of

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

KERNELS = ("matmul", "matmul TMA", "attention", "rms_norm", "gathered")
OTHERS = ("matmul sm_80", "matmul sm_100", "gathered sm_120")
"""Kernels for chips on which no record was ever run."""


OURS = {
    *("BRA", "CS2R", "ELECT", "IADD", "IADD3", "IMAD", "ISETP", "LDC", "LDCU", "LEA", "LOP3"),
    *("MOV", "NOP", "R2UR", "RED", "REDG", "S2R", "SEL", "SHF", "STG", "UIADD3", "ULDC", "UMOV"),
    *("P2R", "PRMT", "R2P", "VIADD", "VOTE", "S2UR", "UIMAD", "UISETP", "ULEA", "ULOP3", "USEL"),
}
"""What is put in, as the disassembler names it."""
_ADDRESS = re.compile(r"MOV R\d+, 0x[0-9a-f]+0")
"""What may be the address to return to from a call."""


@pytest.fixture(scope="module", params=KERNELS + OTHERS)
def kernel(request: pytest.FixtureRequest):
    """Return a compiled kernel: its cubin, its PTX and its name."""
    made = code(request.param).compiled
    return made.asm["cubin"], made.asm["ptx"], made.name


@pytest.fixture(scope="module")
def patched(kernel) -> Patch:
    """Return it with all records there can be."""
    data, ptx, name = kernel
    return patch(data, name, detail="ops", ptx=ptx, untested=True)


def test_every_other_instruction_stands_as_it_did(kernel, patched: Patch):
    data, _, name = kernel
    before, after = (code_of(each, name).flow.code.instructions for each in (data, patched.cubin))
    rest, added = iter(after), []
    for instruction in before:  # in this order, among what was put between them
        between = list(takewhile(lambda each, old=instruction: not _same(old, each), rest))
        added += between
    assert len(before) + len(added) + len(list(rest)) == len(after), "one of them is gone"
    assert {each.op for each in added} <= OURS


def _same(old: Instruction, new: Instruction) -> bool:
    """Whether an instruction is the same, the distances of jumps and places in code aside."""
    if old.targets or old.op in ("BRX", "LEPC"):
        return (old.opcode, old.guard) == (new.opcode, new.guard)
    if _ADDRESS.fullmatch(old.text) and _ADDRESS.fullmatch(new.text):
        return old.text.split(",")[0] == new.text.split(",")[0]
    return old.bits == new.bits


def test_nothing_is_written_that_is_still_in_flight(kernel, patched: Patch):
    data, _, name = kernel
    plain, ours = (hazards(code_of(each, name)) for each in (data, patched.cubin))
    assert [_ADDRESS.sub("", each) for each in ours] == [_ADDRESS.sub("", each) for each in plain]


def test_a_chip_that_none_of_it_was_run_on_is_told(kernel, patched: Patch):
    data, _, name = kernel
    sm = Cubin.read(data).sm
    assert [note for note in patched.notes if "never run" in note] == [
        f"records on sm_{sm} were never run by ikp's makers: compare results."
    ] * (sm != 90)
    if sm != 90:
        with pytest.raises(PatchError, match=f"is for sm_{sm}:.* never run .* IKP_UNTESTED_CHIPS"):
            patch(data, name)


def test_what_is_taken_is_told(kernel, patched: Patch):
    data, _, name = kernel
    before, now = patched.registers
    assert before == Cubin.read(data).kernel(name).registers <= now
    file = Cubin.read(patched.cubin)
    assert file.kernel(name).registers == now
    assert CELL in file.elf.symbol_names()
    assert patched.names[0] == name and len(patched.names) > 1


def test_a_kernel_without_loops_says_how_many_records_it_makes(kernel):
    data, ptx, name = kernel
    if Cubin.read(data).sm != 90:
        return  # the same as on sm_90
    alone = patch(data, name, detail="kernel")
    assert (alone.names, alone.most) == ((name,), 2)
    loops = patch(data, name, detail="loops", ptx=ptx)
    assert loops.most is None or loops.names == (name,)


UNKNOWN_BLOCK = """
.visible .entry k(.param .u64 p)
{
 .reg .u64 a; .reg .u32 t;
 ld.param.u64 a, [p]; mov.u32 t, %tid.x; st.global.u32 [a], t; ret;
}
"""


def test_a_kernel_need_not_say_how_many_threads_a_block_has():
    made = patch(cubin(UNKNOWN_BLOCK, "sm_90a"), "k")
    assert (made.warps, made.names) == (0, ("k",))


GIVES_BACK = """
.visible .entry k(.param .u64 p, .param .u32 n) .reqntid 384 .minnctapersm 1
{
 .reg .u64 a; .reg .u32 t, w, i, c; .reg .pred q; .reg .f32 f<8>;
 ld.param.u64 a, [p]; ld.param.u32 c, [n]; mov.u32 t, %tid.x; shr.u32 w, t, 7;
 setp.ne.u32 q, w, 0; @q bra CONSUMER;
 setmaxnreg.dec.sync.aligned.u32 40;
 mov.u32 i, 0;
L:
 st.global.u32 [a], i; bar.sync 1, 256; add.u32 i, i, 1; setp.lt.u32 q, i, c; @q bra L;
 bra DONE;
CONSUMER:
 setmaxnreg.inc.sync.aligned.u32 232;
 mov.u32 i, 0;
M:
 bar.sync 1, 256; ld.global.f32 f0, [a+16]; st.global.f32 [a+32], f0;
 add.u32 i, i, 1; setp.lt.u32 q, i, c; @q bra M;
DONE:
 ret;
}
"""


def test_warps_that_gave_registers_back_touch_none_of_those():
    plain = cubin(GIVES_BACK, "sm_90a")
    made = patch(plain, "k", detail="ops")
    assert made.registers[0] == made.registers[1] == Cubin.read(plain).kernel("k").registers
    launched = made.registers[1]
    before = code_of(plain, "k").flow
    assert set(registers_at(before, launched)) == {launched, 40, 232}
    code = code_of(made.cubin, "k")
    allowed = registers_at(code.flow, launched)  # records stand where a warp asks for more
    records = 0
    for effect, most in zip(code.effects, allowed, strict=True):
        used = (effect.reads | effect.writes) & R.all
        records += most == 40 and used != 0
        assert used >> ((232 if most == launched else 40) - RESERVED) == 0
    assert records > 20 and len(made.names) > 3


DOUBLES = """
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 m) .reqntid 128
{
 .reg .u64 a, b, o; .reg .u32 t, i, n; .reg .pred q; .reg .f64 f<8>, c<4>;
 ld.param.u64 a, [x]; ld.param.u64 b, [y]; ld.param.u32 n, [m];
 mov.u32 t, %tid.x; mul.wide.u32 o, t, 8; add.u64 a, a, o; add.u64 b, b, o; mov.u32 i, 0;
 cvt.rn.f64.u32 c0, t; mov.f64 c1, c0; mov.f64 c2, c0; mov.f64 c3, c0;
L:
 ld.global.f64 f0, [a]; ld.global.f64 f1, [a+1024]; add.u64 a, a, 2048;
 mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {c0,c1,c2,c3}, {f0,f1}, {f1}, {c0,c1,c2,c3};
 add.u32 i, i, 1; setp.lt.u32 q, i, n; @q bra L;
 st.global.f64 [b], c0; st.global.f64 [b+1024], c1;
 st.global.f64 [b+2048], c2; st.global.f64 [b+3072], c3;
 ret;
}
"""


def test_products_of_doubles_are_recorded():
    plain = cubin(DOUBLES, "sm_90a")
    made = patch(plain, "k", detail="ops")
    assert "DMMA" in {each.op for each in code_of(plain, "k").flow.code.instructions}
    assert hazards(code_of(made.cubin, "k")) == hazards(code_of(plain, "k"))
    assert {"mma", "iteration", "loop"} <= set(made.names)


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (lambda: cubin(UNKNOWN_BLOCK, "sm_90a"), "other", "no kernel 'other'"),
        (lambda: cubin(UNKNOWN_BLOCK, "sm_80"), "k", "sm_80.*IKP_UNTESTED_CHIPS=1"),
        (lambda: cubin(UNKNOWN_BLOCK, "sm_75"), "k", "for sm_75: .* for sm_80,.* sm_120 alone"),
        (lambda: b"not a cubin" * 10, "k", "ELF"),
    ],
)
def test_what_is_not_known_is_refused_in_words(data, name: str, words: str):
    with pytest.raises(PatchError, match=words):
        patch(data(), name)


def test_a_file_for_a_debugger_is_said_to_be_one() -> None:
    """Its calls are why it is refused, and that it is not optimised is why it is slow."""
    plain: Any = SimpleNamespace(elf=SimpleNamespace(sections=[SimpleNamespace(name=".text.k")]))
    assert not _unoptimised(plain)
    plain.elf.sections.append(SimpleNamespace(name=".nv_debug_info_reg_sass"))
    assert "-lineinfo in place of -G" in _unoptimised(plain)
