"""Instructions reached by a branch: everything else stays where it is."""

from __future__ import annotations

import numpy as np
import pytest

from ikp.errors import PatchError
from ikp.machine.cubin import Cubin
from ikp.machine.encodings import names_place
from ikp.machine.instruction import BYTES, NOP, opcodes
from ikp.machine.shift import Before
from ikp.machine.trampoline import trampoline
from tests.machine.module import CHIPS, KERNELS, cubin
from tests.machine.readback import codes, read

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


def movable(made: Cubin, name: str) -> list[int]:
    words = made.kernel(name).words
    return [at for at, code in enumerate(opcodes(words).tolist()) if not names_place(code)]


@pytest.mark.parametrize("chip", CHIPS)
def test_every_other_instruction_that_can(chip: str) -> None:
    made, to = Cubin.read(cubin(chip)), {}
    for name in KERNELS:
        places = movable(made, name)[::2]
        to[name] = trampoline(made, name, [Before(each, (NOP,)) for each in places]), set(places)
    before, after = codes(cubin(chip)), codes(made.write())
    for name, (shift, places) in to.items():
        old, now = read(before[name]), read(after[name])
        for at, each in enumerate(old):
            if at in places:
                there = int(shift.new[at])
                assert now[at] == ("BRA target", (there - 1,), now[at].lines)
                assert [now[there - 1].text, now[there].text] == ["NOP", each.text]
                assert (now[there + 1].text, now[there + 1].targets) == ("BRA target", (at + 1,))
            else:
                assert now[at] == each
        assert len(now) % 8 == 0


def test_exits_are_listed_where_they_are() -> None:
    made = Cubin.read(cubin())
    exits = made.kernel("loop").exits
    to = trampoline(made, "loop", [Before(each, (NOP,)) for each in exits])
    again = Cubin.read(made.write()).kernel("loop")
    assert again.exits == [int(to.new[each]) for each in exits] != exits
    assert set(opcodes(again.words)[again.exits].tolist()) == {0x94D}
    size = again.functions[-1].start + again.functions[-1].size
    assert size <= len(again.text.data)


def test_what_cannot_stand_elsewhere_is_refused() -> None:
    made = Cubin.read(cubin())
    words = made.kernel("loop").words
    jump = int(np.flatnonzero(opcodes(words) == 0x947)[0])
    with pytest.raises(PatchError, match="counts from its own place"):
        trampoline(made, "loop", [Before(jump, (NOP,))])
    with pytest.raises(PatchError, match="has no instruction"):
        trampoline(made, "loop", [Before(len(words), (NOP,))])


def test_who_comes_by_a_branch_cannot_be_told() -> None:
    made = Cubin.read(cubin())
    targets = codes(cubin())["loop"].labels.values()
    place = next(each for each in sorted(targets) if each in movable(made, "loop") and each > 2)
    with pytest.raises(PatchError, match=r"can't tell who comes by a branch"):
        trampoline(made, "loop", [Before(place, (NOP,), skipped=True)])
    trampoline(made, "loop", [Before(place, (NOP,))])
    assert len(made.kernel("loop").text.data) % (8 * BYTES) == 0
