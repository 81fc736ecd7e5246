"""Instructions between those of a kernel, read back by NVIDIA's disassembler and by a model."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikp.errors import PatchError
from ikp.sass.cubins.attributes import Attribute, AttributeCode, Format
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.instruction import (
    BYTES,
    WIDE,
    branches,
    distances,
    number,
    opcodes,
    rows,
    set_distances,
)
from ikp.sass.insertion.displacement import Displacement, Insertion
from ikp.sass.insertion.insert import OnEdge, insert
from tests.sass import assembled, model
from tests.sass.module import CHIPS, KERNELS, cubin
from tests.sass.readback import NOP, assert_reads_back, codes, everywhere, read

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

UNMOVED = {("sm_80", "prints")}
"""Kernels that are refused: there, a call's return address is computed from LEPC."""


def changed(chip: str, count: int = 1) -> tuple[Cubin, dict[str, Displacement]]:
    """Put NOPs after every instruction of every kernel."""
    made = Cubin.read(cubin(chip))
    kernels = [name for name in KERNELS if (chip, name) not in UNMOVED]
    return made, {
        name: insert(made, name, everywhere(len(made.kernel(name).words), count))
        for name in kernels
    }


@pytest.mark.parametrize("chip", CHIPS)
def test_after_every_instruction(chip: str) -> None:
    made, to = changed(chip)
    assert_reads_back(cubin(chip), made.write(), to)
    lines = {line.number for each in codes(cubin(chip))["loop"].instructions for line in each.lines}
    assert lines >= {3, 5, 7, 400}  # that source lines follow is part of what was compared


def test_every_control_word_stays() -> None:
    for chip in CHIPS:
        plain = Cubin.read(cubin(chip))
        made, to = changed(chip, 2)
        for name, shift in to.items():
            old, new = plain.kernel(name).words, made.kernel(name).words[shift.new[:-1]]
            assert (old[:, 1] >> np.uint64(41) == new[:, 1] >> np.uint64(41)).all()
            assert (opcodes(old) == opcodes(new)).all()


@st.composite
def additions(draw: st.DrawFn, count: int) -> list[Insertion]:
    places = st.integers(0, count)
    sizes = st.integers(1, 5)
    drawn = draw(st.lists(st.tuples(places, sizes, st.booleans()), max_size=12))
    return [
        Insertion(index, tuple(NOP + (at << 32) for at in range(size)), skipped)
        for index, size, skipped in drawn
    ]


@given(st.data())
def test_at_random_places_as_the_model_has_it(data: st.DataObject) -> None:
    chip, name = data.draw(st.sampled_from(CHIPS)), data.draw(st.sampled_from(KERNELS))
    if (chip, name) in UNMOVED:
        return
    made = Cubin.read(cubin(chip))
    plain = made.kernel(name).words
    added = data.draw(additions(len(plain)))
    insert(made, name, added)
    now = made.kernel(name).words
    assert model.graph(now, made.sm) == model.expected(plain, made.sm, added, len(now))
    assert_consistent(made, name)


@settings(max_examples=2)
@given(st.data())
def test_at_random_places_as_the_disassembler_has_it(data: st.DataObject) -> None:
    made = Cubin.read(cubin())
    to = {}
    for name in KERNELS:
        places = data.draw(st.lists(st.integers(0, len(made.kernel(name).words)), max_size=20))
        to[name] = insert(
            made, name, [Insertion(each, (NOP, NOP), bool(each & 1)) for each in places]
        )
    assert_reads_back(cubin(), made.write(), to)


def exits(kernel: Kernel) -> list[int]:
    """Return the instructions that end a thread, as the file lists them."""
    listed = (each for each in kernel.attributes if each.code == AttributeCode.EXIT_INSTR_OFFSETS)
    return [place // BYTES for each in listed for place in each.words]


def assert_consistent(made: Cubin, name: str) -> None:
    """What a loader reads beside the code fits the code."""
    again = Cubin.read(made.write())
    kernel = again.kernel(name)
    assert (kernel.words == made.kernel(name).words).all()
    assert {int(each) for each in opcodes(kernel.words)[exits(kernel)]} == {0x94D}
    symbols = again.elf.symbols()
    own = symbols[kernel.symbol]
    assert (own["value"], own["size"]) == (0, len(kernel.text.data))
    assert len(kernel.text.data) % 128 == 0
    ends = [0, *(each.start + each.size for each in kernel.functions)]
    assert all(each.start + each.size <= len(kernel.text.data) for each in kernel.functions)
    assert all(each.start % BYTES == 0 for each in kernel.functions) and min(ends) == 0


def test_branches_skip_what_is_for_those_who_fall_through() -> None:
    made = Cubin.read(cubin())
    words = made.kernel("loop").words
    far = branches(made.sm)
    jump = next(
        at for at in np.flatnonzero(opcodes(words) == 0x947) if number(words[at]) >> 12 & 7 != 7
    )
    target = int(jump) + 1 + int(distances(words[[jump]], far)[0]) // BYTES
    marks = tuple(NOP + (at << 32) for at in range(3))
    to = insert(
        made, "loop", [Insertion(target, marks[:1]), Insertion(target, marks[1:], skipped=True)]
    )
    now = made.kernel("loop").words
    begin = int(to.start[target])
    assert [number(row) for row in now[begin : begin + 3]] == [marks[1], marks[2], marks[0]]
    here = int(to.new[jump])
    assert here + 1 + int(distances(now[[here]], far)[0]) // BYTES == begin + 2


@pytest.mark.parametrize("chip", CHIPS)
def test_on_the_edge_of_a_branch(chip: str) -> None:
    made = Cubin.read(cubin(chip))
    far, words = branches(made.sm), made.kernel("loop").words
    jump = int(np.flatnonzero(opcodes(words) == 0x947)[0])
    target = jump + 1 + int(distances(words[[jump]], far)[0]) // BYTES
    to = insert(made, "loop", [Insertion(3, (NOP,))], [OnEdge(jump, (NOP, NOP))])
    now = made.kernel("loop").words
    here = int(to.new[jump])
    there = here + 1 + int(distances(now[[here]], far)[0]) // BYTES
    assert there == to.count
    assert [number(row) for row in now[there : there + 2]] == [NOP, NOP]
    assert opcodes(now)[there + 2] == 0x947
    assert there + 3 + int(distances(now[[there + 2]], far)[0]) // BYTES == to.land[target]
    texts = read(codes(made.write())["loop"])
    assert texts[here].text.startswith("@") and texts[here].targets == (there,)
    assert texts[there + 2].targets == (int(to.land[target]),)


def test_several_times() -> None:
    """A kernel that was changed can be changed again."""
    made, at_once = Cubin.read(cubin()), Cubin.read(cubin())
    count = len(made.kernel("calls").words) + 2
    once = insert(made, "calls", [Insertion(4, (NOP,))])
    insert(made, "calls", [Insertion(int(once.new[4]), (NOP,))])
    insert(at_once, "calls", [Insertion(4, (NOP, NOP))])
    assert (made.kernel("calls").words[:count] == at_once.kernel("calls").words[:count]).all()


def test_what_is_not_known_is_refused() -> None:
    made = Cubin.read(cubin("sm_80"))
    with pytest.raises(PatchError, match="puts its own address into a register"):
        insert(made, "prints", [Insertion(1, (NOP,))])
    made = Cubin.read(cubin())
    for index in (-1, len(made.kernel("loop").words) + 1):
        with pytest.raises(PatchError, match="pass numbers from 0"):
            insert(made, "loop", [Insertion(index, (NOP,))])
    with pytest.raises(PatchError, match="no edge"):
        insert(made, "loop", [], [OnEdge(0, (NOP,))])
    with pytest.raises(PatchError, match=r"has no kernel 'lop'\. It has .*loop"):
        insert(made, "lop", [])
    unknown = rows([0x7F00D, *[0x7918] * 7])  # opcode 0x00d
    made.kernel("loop").text.data = unknown.tobytes()
    with pytest.raises(PatchError, match=r"opcode 0xd .*is not known"):
        insert(made, "loop", [])


def test_a_call_without_its_return_address_is_refused() -> None:
    made = Cubin.read(cubin())
    words = made.kernel("calls").words
    moves = np.flatnonzero(opcodes(words) == 0x802)
    words[moves, 0] ^= np.uint64(1 << 50)
    made.kernel("calls").text.data = words.tobytes()
    with pytest.raises(PatchError, match="address to return to"):
        insert(made, "calls", [Insertion(1, (NOP,))])


@pytest.mark.parametrize("guarded", [True, False])
def test_a_number_that_equals_a_return_address_by_chance_is_left(guarded: bool) -> None:
    """One of cuSOLVER's kernels has it: 0x400, where its shared memory begins."""
    made = Cubin.read(cubin())
    words = made.kernel("calls").words
    move = int(np.flatnonzero(opcodes(words) == 0x802)[0])
    assert move > 1
    words[1] = words[move]
    words[1, 0] ^= np.uint64(guarded * 5 << 12)
    made.kernel("calls").text.data = words.tobytes()
    if not guarded:
        with pytest.raises(PatchError, match="address to return to"):
            insert(made, "calls", [Insertion(2, (NOP,))])
        return
    insert(made, "calls", [Insertion(2, (NOP,))])
    after = made.kernel("calls").words
    value = words[move, 0] >> np.uint64(32)
    assert after[1, 0] >> np.uint64(32) == value
    assert after[move + 1, 0] >> np.uint64(32) == value + np.uint64(16)


INSIDE = """
.visible .entry k(.param .u64 p)
{
 .reg .u64 a; .reg .f64 x, y;
 ld.param.u64 a, [p]; ld.global.f64 x, [a]; ld.global.f64 y, [a+8];
 div.rn.f64 x, x, y; st.global.f64 [a], x; ret;
}
"""


@pytest.mark.parametrize("spoiled", ["", "not copied", "in another way", "called twice"])
def test_a_function_that_is_called_once_sets_itself_where_it_returns_to(spoiled: str) -> None:
    """As cuSOLVER's divisions and FlashAttention's large heads do."""
    made = Cubin.read(assembled.cubin(INSIDE, "sm_90a"))
    kernel = made.kernel("k")
    words, (function,) = kernel.words, kernel.functions
    (call,) = np.flatnonzero(opcodes(words) == 0x944).tolist()
    (move,) = (
        at
        for at in np.flatnonzero(opcodes(words) == 0x802).tolist()
        if int(words[at, 0]) >> 32 == (call + 1) * 16
    )
    ret = int(np.flatnonzero(opcodes(words) == 0x950)[0])
    plain, register = words[move].copy(), int(words[ret, 0]) >> 24 & 0xFF
    if move < call:  # what it has before the call is put where it returns
        words[move] = rows([NOP])[0]
        words[ret - 1] = plain
        words[ret - 1, 0] = plain[0] & ~np.uint64(0xFF0000) | np.uint64(register << 16)
        move = ret - 1
    if spoiled == "not copied":
        words[move, 0] ^= np.uint64(0x40 << 16)
    elif spoiled == "in another way":
        words[function.start // 16] = words[move]
        words[function.start // 16, 0] ^= np.uint64(0x802 ^ 0x424)
    elif spoiled == "called twice":
        words[call + 8] = words[call]
        set_distances(
            words[call + 8 : call + 9], WIDE, np.array([function.start - (call + 9) * 16])
        )
    kernel.text.data = words.tobytes()
    if spoiled:
        with pytest.raises(PatchError, match="address to return to"):
            insert(made, "k", [Insertion(2, (NOP,))])
        return
    insert(made, "k", [Insertion(2, (NOP,))])
    value = made.kernel("k").words[move + 1, 0] >> np.uint64(32)
    assert value == np.uint64((call + 2) * 16)


def test_a_jump_table_that_is_not_known_is_refused() -> None:
    made = Cubin.read(cubin())
    bank = made.elf.find(".nv.constant2.chooses")
    assert bank is not None
    bank.data += bytes(4)
    with pytest.raises(PatchError, match="where its table of targets lies is not known"):
        insert(made, "chooses", [Insertion(1, (NOP,))])
    made = Cubin.read(cubin())
    kernel = made.kernel("chooses")
    kernel.attributes = [
        each for each in kernel.attributes if each.code != AttributeCode.INDIRECT_BRANCH_TARGETS
    ]
    with pytest.raises(PatchError, match="doesn't list it"):
        insert(made, "chooses", [Insertion(1, (NOP,))])


def test_what_is_refused_leaves_the_cubin_as_it_was() -> None:
    made = Cubin.read(cubin())
    kernel = made.kernel("chooses")
    kernel.attributes.append(Attribute(Format.SIZED, 0x2D, bytes(8)))
    with pytest.raises(PatchError, match="0x2d"):
        insert(made, "chooses", [Insertion(1, (NOP,))])
    assert made.write() == cubin()
    with pytest.raises(PatchError, match="128 bits"):
        insert(made, "loop", [Insertion(1, (1 << 128,))])
    with pytest.raises(PatchError, match="no number"):
        insert(made, "loop", [Insertion(1, (-1,))])


@given(st.sampled_from(CHIPS), st.integers(0, 1 << 30), st.integers(0, 255))
def test_damage_is_told(chip: str, at: int, byte: int) -> None:
    data = bytearray(cubin(chip))
    data[at % len(data)] = byte
    with suppress(PatchError):
        made = Cubin.read(bytes(data))
        for name in made.kernels:
            insert(made, name, [Insertion(1, (NOP,))])
        made.write()
