"""The kernel's own code, once more in front of the one with records: it is the same, and whole."""

from __future__ import annotations

import pytest

from ikp.errors import PatchError
from ikp.sass.cubins.attributes import MOST_BYTES, AttributeCode
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.instruction import BYTES, LINE, branch, branches
from ikp.sass.insertion.insert import PlainCode, insert
from tests.sass.module import CHIPS, KERNELS, cubin
from tests.sass.readback import NOP, Read, codes, everywhere, moved, read

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

REFUSED = {
    **{(chip, "chooses"): "one table for its indirect branches" for chip in CHIPS},
    ("sm_80", "prints"): "puts its own address into a register",
}
"""Kernels whose copy would go on in the other, or return there."""


def exits(code: list[Read]) -> set[int]:
    return {at * BYTES for at, each in enumerate(code) if each.text.split(" ")[-1] == "EXIT"}


def told(kernel: Kernel) -> set[int]:
    return {
        n
        for each in kernel.attributes
        if each.code == AttributeCode.EXIT_INSTR_OFFSETS
        for n in each.words
    }


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_copy_is_the_plain_code_and_leads_to_nothing_else(chip: str, name: str) -> None:
    made = Cubin.read(cubin(chip))
    kernel = made.kernel(name)
    count = len(kernel.words)
    if (chip, name) in REFUSED:
        with pytest.raises(PatchError, match=REFUSED[chip, name]):
            PlainCode.of(made, kernel)
        return
    copy = PlainCode.of(made, kernel)
    before = copy.behind([NOP, NOP, branch(branches(made.sm), 0)], made.sm)
    first, last = (each // BYTES for each in copy.span_of(before))
    assert first == LINE and last == first + count
    to = insert(made, name, [before, *everywhere(count)])
    copy.follow(made, name, before)
    new = made.write()
    old, now = read(codes(cubin(chip))[name]), read(codes(new)[name])
    assert [Read(e.text, tuple(t - first for t in e.targets), ()) for e in now[first:last]] == [
        Read(each.text, each.targets, ()) for each in old
    ]
    assert now[first - 1].text.startswith("BRA") and now[first - 1].targets == (last,)
    assert all(now[at] == each for at, each in moved(old, to).items())
    file = Cubin.read(new)
    assert told(file.kernel(name)) == exits(now) and len(exits(now)) == 2 * len(exits(old))


def test_code_into_which_the_loader_writes_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Cubin.read(cubin("sm_90a"))
    kernel = made.kernel("prints")
    (found,) = (e for e in made.elf.relocations() if e[0].name == ".rela.nv.constant4")
    monkeypatch.setattr(found[0], "info", kernel.index)
    with pytest.raises(PatchError, match="prints has addresses that the loader writes"):
        PlainCode.of(made, kernel)


def test_attributes_that_can_not_hold_twice_as_much_are_left() -> None:
    made = Cubin.read(cubin("sm_90a"))
    kernel = made.kernel("loop")
    (exits,) = (e for e in kernel.attributes if e.code == AttributeCode.EXIT_INSTR_OFFSETS)
    exits.value = exits.data * (MOST_BYTES // len(exits.data) // 2)
    PlainCode.of(made, kernel)
    exits.value = exits.data * 2
    with pytest.raises(PatchError, match="loop has too many code addresses"):
        PlainCode.of(made, kernel)
