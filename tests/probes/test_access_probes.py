"""Address probes: what a patched kernel stores in the emulator, and what is verified of it."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from ikp.core.address_tables import RecordedAccess, figures
from ikp.core.run_figures import AccessFigures
from ikp.errors import PatchError
from ikp.probes.access_probes import (
    _MOST_CAPACITY,
    _MOST_OFFSET,
    MOST_BYTES,
    AddressPatch,
    _layout,
    _pair,
    _reserved,
    patch_accesses,
)
from ikp.probes.code.reserved_registers import ConstantOffsets
from ikp.sass.assembly import lane_forms as lanes
from ikp.sass.assembly.chips import HOPPER
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.dataflow.reading import code_of
from ikp.sass.disassembly.effects import UR
from ikp.sass.disassembly.tools import assemble
from ikp.verifier.verify import faults
from tests.sass import compiled
from tests.sass.assembled import assembled, read
from tests.sass.emulate import LANES, Machine, Warp

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]
BASE, TURNS, WARPS, BLOCKS = 0x7F42_1000_0000, 5, 2, 8
PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n) {
 .reg .u64 a, b, c; .reg .u32 r<9>; .reg .pred p, q;
 ld.param.u64 a, [out]; ld.param.u32 r0, [n]; mov.u32 r1, 0; mov.u32 r2, %tid.x;
 setp.lt.u32 q, r2, 5; mov.b64 {r4, r5}, a;
 mad.lo.u32 r6, r2, 12, r4; mov.b64 b, {r6, r5};
 shr.u32 r3, r2, 5; mad.lo.u32 r7, r3, 4, r4; mov.b64 c, {r7, r5};
LOOP:
 .pragma "nounroll";
 st.volatile.global.u32 [b], r1;
 add.u32 r1, r1, 1; setp.lt.u32 p, r1, r0; @p bra LOOP;
 @q st.volatile.global.u32 [b+1024], r1;
 red.global.add.u32 [c+2048], r2;
 st.volatile.global.u32 [b+3072], r1;
 ret;
}
"""


def recorded(made: AddressPatch) -> list[RecordedAccess]:
    return [
        RecordedAccess(
            *(each.text, "", "", each.access.space, each.access.kind, each.access.width),
            *(each.access.lanes, each.access.beyond),
        )
        for each in made.sites
    ]


def run(code: bytes, own: frozenset[int], nbytes: int, slots: int) -> tuple[bytes, bytes]:
    """Return the tables, and the kernel's results, after all blocks."""
    text = Cubin.read(code).kernel("k").text.data
    words = [int.from_bytes(text[at : at + 16], "little") for at in range(0, len(text), 16)]
    words = [word & ~0xFFF | 0x918 if word & 0xFF0FFF == 0x10B82 else word for word in words]
    into, places = BASE + nbytes, ConstantOffsets()
    given = (into & 0xFFFFFFFF, into >> 32, TURNS)
    constants = {(0, HOPPER.parameters + 4 * at): each for at, each in enumerate(given)}
    constants |= {(0, places.descriptor): 0x1234, (0, places.descriptor + 4): 0, (0, 0x28): 0}
    constants |= {(3, 0): BASE & 0xFFFFFFFF, (3, 4): BASE >> 32, (3, 8): slots, (3, 12): 0}
    machine = Machine(constants, bytearray(nbytes + 4096), BASE, chip=HOPPER)
    for block in range(BLOCKS):
        for warp in range(WARPS):
            special = {number: np.zeros(LANES, np.uint64) for number in range(256)}
            special[0x21] = np.arange(warp * LANES, (warp + 1) * LANES).astype(np.uint64)
            special[0x25] = np.full(LANES, block, np.uint64)
            special[0] = np.arange(LANES).astype(np.uint64)
            Warp(machine, special, own=own or frozenset(range(len(words)))).run(words)
    return bytes(machine.memory[:nbytes]), bytes(machine.memory[nbytes:])


def original(made: AddressPatch) -> frozenset[int]:
    ours = {at // BYTES for first, end in made.declared.inserted for at in range(first, end, BYTES)}
    count = len(Cubin.read(made.cubin).kernel("k").words)
    return frozenset(range(count)) - ours


def ran(made: AddressPatch) -> tuple[list[AccessFigures], bytes, bytes]:
    tables = made.tables
    content, left = run(made.cubin, original(made), tables.nbytes, tables.slots)
    found = figures(content, recorded(made), made.sample.warps, tables.capacity)
    return list(found), content, left


def test_lanes_of_sampled_warps_store_their_addresses_and_the_results_are_the_plain_ones() -> None:
    plain = assemble(PTX, "PTX")
    made = patch_accesses(plain, "k", (BLOCKS, 1, 1), (WARPS * LANES, 1, 1))
    assert (made.sample.blocks, made.sample.slots, made.left_out) == (4, 4 * WARPS, ())
    found, content, left = ran(made)
    assert left == run(plain, frozenset(), made.tables.nbytes, 1)[1]
    first, few, atomic, last = found
    assert (first.executed, first.requests, first.dropped) == (8 * 32 * TURNS, 8 * TURNS, 0)
    assert (first.active, first.cost, first.least, first.stride) == (32, 12, 4, 12)
    assert (first.reuse, first.blocks_share, last.reuse) == (TURNS, 4, 1)
    # of each block, the first five lanes of its first warp; lanes 0 to 4 share two sectors
    assert (few.executed, few.requests, few.active, few.cost, few.least) == (20, 4, 5, 2, 1)
    assert (atomic.kind, atomic.executed) == ("atomic", 8 * 32)
    assert (atomic.same_address, atomic.cost, last.same_address) == (32, 1, 1)
    entries = np.frombuffer(content, "<u4").reshape(8, 4, -1)[0, 0, 4:].reshape(-1, 4)
    address = BASE + made.tables.nbytes + 12 * entries[:32, 0].astype(int)
    assert sorted(entries[:32, 0]) == [*range(32)]
    assert ((entries[:32, 2].astype(int) << 32 | entries[:32, 1]) == address).all()


def test_what_has_no_room_is_counted_and_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ikp.probes.access_probes._MOST_CAPACITY", 96)
    made = patch_accesses(assemble(PTX, "PTX"), "k", (BLOCKS, 1, 1), (WARPS * LANES, 1, 1))
    found, _, _ = ran(made)
    assert (found[0].executed, found[0].dropped) == (8 * 32 * TURNS, 8 * 32 * (TURNS - 3))
    assert (found[0].requests, found[0].cost) == (8 * 3, 12)


@pytest.mark.parametrize(("said", "is_open"), [(True, False), (False, True)])
def test_a_kernel_whose_code_says_trips_and_addresses_is_not_probed_unasked(
    said: bool, is_open: bool
) -> None:
    values = [(0, BASE.to_bytes(8, "little")), *([(8, TURNS.to_bytes(4, "little"))] * said)]
    grid, block, plain = (BLOCKS, 1, 1), (WARPS * LANES, 1, 1), assemble(PTX, "PTX")
    if is_open:
        assert patch_accesses(plain, "k", grid, block, values=values).sites
    else:
        with pytest.raises(PatchError, match="says how often its loops go round"):
            patch_accesses(plain, "k", grid, block, values=values)


@pytest.mark.parametrize("name", ["matmul", "attention", "gathered", "rms_norm", "matmul TMA"])
def test_kernels_of_triton_are_probed_and_verified(name: str) -> None:
    code = compiled.code(name).compiled
    block = (32 * code.metadata.num_warps, 1, 1)
    made = patch_accesses(code.asm["cubin"], code.metadata.name, (64, 8, 1), block)
    assert made.left_out == ()
    text = "\n".join(each for each, _ in read(made.cubin))
    assert text.count("ATOMG.E.ADD.STRONG.GPU") == len(made.sites)
    assert all(each.lines for each in made.sites)


def test_a_probe_reads_what_its_instruction_reads_and_nothing_else() -> None:
    """The verifier refuses a probe of a register that the instruction behind it does not name."""
    plain = assemble(PTX, "PTX")
    made = patch_accesses(plain, "k", (BLOCKS, 1, 1), (WARPS * LANES, 1, 1))
    text = code_of(plain, Cubin.read(plain), "k")
    assert faults(plain, made.cubin, text, made.declared) == []
    assert any(
        "which no inserted one has set" in each
        for each in faults(plain, made.cubin, text, replace(made.declared, watches=False))
    )
    cubin = Cubin.read(made.cubin)
    words = cubin.kernel("k").words
    own = made.sites[0].access.own
    copies = [
        at
        for at in range(len(words))
        if at not in original(made) and int(words[at, 0]) & 0xFFF == 0x224
        if int(words[at, 1]) & 0xFF == own
    ]
    words[copies[0], 1] = int(words[copies[0], 1]) & ~0xFF | 0
    cubin.kernel("k").text.data = words.tobytes()
    assert any(
        "which no inserted one has set" in each
        for each in faults(plain, cubin.write(), text, made.declared)
    )


def test_a_kernel_without_accesses_by_lane_is_refused() -> None:
    empty = PTX.partition(" ld.param")[0] + " ret;\n}\n"
    with pytest.raises(PatchError, match="has no access to memory by lane"):
        patch_accesses(assemble(empty, "PTX"), "k", (1, 1, 1), (32, 1, 1))


def test_a_kernel_for_another_chip_is_refused() -> None:
    code = compiled.code("matmul sm_80").compiled
    with pytest.raises(PatchError, match="sm_80"):
        patch_accesses(code.asm["cubin"], code.metadata.name, (8, 8, 1), (256, 1, 1))


FORMS_PTX = """
.visible .entry k(.param .u64 p, .param .u32 n) {
 .reg .u64 a, b; .reg .u32 s<9>; .reg .pred q, t, v;
 ld.param.u64 a, [p]; ld.param.u32 s0, [n]; mov.u32 s1, %tid.x; mov.u32 s2, %laneid;
 mad.wide.u32 b, s1, 16, a; setp.lt.u32 q, s1, s0; vote.sync.ballot.b32 s3, q, -1;
 atom.global.add.u32 s4, [b+4096], s2; mad.lo.u32 s5, s4, 48, s3;
 setp.lt.and.u32 t, s4, 192, q; @t st.global.u32 [b], s5;
 setp.lt.and.u32 v, s5, 77, !q; @v st.global.u32 [b+64], s2;
 ret;
}
"""
R, HEX = r"R(\d+)", r"(0x[0-9a-f]+)"


def below_without(into: int, a: int, value: int, p: int) -> lanes.Step:
    """Return a comparison that holds only without a predicate."""
    high = lanes.holds(into, p, negated=True).high
    return lanes.below_constant(into, a, value, p)._replace(high=high)


FORMS = {
    rf"VOTE\.ANY {R}, PT, P(\d)": lanes.ballot,
    rf"VOTE\.ANY {R}, PT, !P(\d)": lambda into, p: lanes.ballot(into, p)._replace(
        high=lanes.ballot(into, p).high | 1 << 26
    ),
    rf"ATOMG\.E\.ADD\.STRONG\.GPU PT, {R}, \[{R}\.64\+{HEX}\], {R}": lambda a, b, o, v: lanes.count(
        a, b, o, v, 0
    ),
    rf"IMAD {R}, {R}, {HEX}, {R}": lanes.multiply_add,
    rf"ISETP\.LT\.U32\.AND P(\d), PT, {R}, {HEX}, P(\d)": lanes.below_constant,
    rf"ISETP\.LT\.U32\.AND P(\d), PT, {R}, {HEX}, !P(\d)": below_without,
}


def test_forms_are_what_the_assembler_makes() -> None:
    seen = set()
    for text, word in assembled(FORMS_PTX, "sm_90a"):
        plain = re.sub(r"desc\[UR(\d+)\]", "", re.sub(r"@!?P\d |\.reuse", "", text))
        for form, make in FORMS.items():
            if found := re.fullmatch(form, plain):
                step = make(*(int(each, 0) for each in found.groups()))
                given = re.search(r"desc\[UR(\d+)\]", text)
                high = step.high | (int(given[1]) if given else 0)
                own = (1 << 105) - 1 & ~(0xF << 12)  # the guard is that of the instruction
                assert hex((high << 64 | step.low) & own) == hex(word & own), text
                seen.add(form)
    assert seen >= {each for each in FORMS if "VOTE" not in each}
    assert any("VOTE" in each for each in seen)


def test_uniform_registers_of_no_known_purpose_are_taken_by_no_probe() -> None:
    for free, pair in (
        ((*range(4), 6, 7), 6),
        ((*range(6), 6, 7), 4),
        ((3, 5, 6, 7, 8), 6),
        ((0, 1, 2, 3), None),
    ):
        assert _pair(free) == pair


@pytest.mark.parametrize("count", [1, 3, 57, 300, 700])
@pytest.mark.parametrize("blocks", [1, 5, 264, 100_000])
@pytest.mark.parametrize("threads", [32, 256])
def test_tables_are_as_large_as_the_buffer_and_an_offset_allow(
    count: int, blocks: int, threads: int
) -> None:
    sample, tables = _layout(count, (blocks, 1, 1), (threads, 1, 1))
    most = min(_MOST_OFFSET, MOST_BYTES // sample.slots)  # of a warp's tables
    assert tables.slot_bytes <= most and tables.capacity % LANES == 0
    larger = replace(tables, capacity=tables.capacity + LANES)
    assert larger.slot_bytes > most or tables.capacity == _MOST_CAPACITY
    assert sample.blocks <= 2 * 4, "few blocks speak for all"


def test_more_accesses_than_one_block_has_tables_for_are_refused() -> None:
    with pytest.raises(PatchError, match="warps do not fit in 48 MiB"):
        _layout(20_000, (4, 1, 1), (1024, 1, 1))


@pytest.mark.parametrize("left", [(20, 21, 30), (20, 22, 23), (20, 21), (20,), (20, 30)])
def test_a_warps_number_and_a_descriptor_have_registers_of_their_own(left: tuple[int, ...]) -> None:
    """Where a pair is left beside one for the number; else the number alone has one."""
    taken = list[int]()
    free = SimpleNamespace(unused_uniform=left, reserve=taken.extend)
    number, pair = _reserved(cast("FreeRegisters", free), "k")
    kept = {number, *(() if pair is None else (pair, pair + 1))}
    assert len(kept) == (3 if len(left) == 3 else 1) and kept <= {*left}
    assert {each - UR.first for each in taken} == kept
