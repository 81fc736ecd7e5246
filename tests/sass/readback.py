"""Machine code before and after it was changed, as NVIDIA's disassembler reads both."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.instruction import BYTES, PASSED
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.disassembly import listing
from ikp.sass.disassembly.tools import disassemble
from ikp.sass.insertion.displacement import Displacement, Insertion

NOP = PASSED
LABEL = re.compile(r"`\(([^)]+)\)")
NUMBER = re.compile(r"-?0x[0-9a-f]+$")
JOINS = ("BSSY", "WARPSYNC", "LEPC")
"""What names a place that threads fall through or return to."""


class Read(NamedTuple):
    """An instruction as it reads, but for the names of its targets."""

    text: str
    targets: tuple[int, ...]  # numbers of instructions
    lines: tuple[listing.Line, ...]


@cache
def codes(cubin: bytes) -> dict[str, listing.Code]:
    """Disassemble a cubin."""
    return {each.name: each for each in listing.parse(disassemble(cubin))}


@cache
def code_of(cubin: bytes, name: str) -> Liveness:
    """Return one function, read."""
    return Liveness(Flow(codes(cubin)[name]))


def read(code: listing.Code) -> list[Read]:
    """Return each instruction, its targets resolved."""
    made = []
    for each in code.instructions:
        targets = LABEL.findall(", ".join(each.operands))
        text = LABEL.sub("target", each.text)
        if each.op in ("BRX", "BRXU"):  # counts from the code's start, whatever it stands
            assert int(NUMBER.findall(text)[0], 16) == -(each.address + BYTES)
            text = NUMBER.sub("start", text)
        numbers = tuple(code.labels[name] for name in targets)
        made.append(Read(text, numbers, each.lines))
    return made


def moved(old: list[Read], to: Displacement) -> dict[int, Read]:
    """Return what each old instruction must read as, by its new number."""
    return {int(to.new[at]): _moved(old, at, to) for at in range(len(old))}


def _moved(old: list[Read], at: int, to: Displacement) -> Read:
    each = old[at]
    joins = each.text.removeprefix("@").split(" ", each.text[0] == "@")[-1].startswith(JOINS)
    new = tuple(
        int((to.start if joins else to.land)[target]) * (target > 0) for target in each.targets
    )
    text, call = each.text, _called_next(old, at)
    if call is not None:
        text = NUMBER.sub(f"{int(to.start[call + 1]) * BYTES:#x}", text)
    return Read(text, new, each.lines)


def _called_next(old: list[Read], at: int) -> int | None:
    """Return the call whose address to return to an instruction sets."""
    if "MOV R" not in old[at].text or not (found := NUMBER.findall(old[at].text)):
        return None
    near = range(at + 1, min(at + 32, len(old)))
    calls = (call for call in near if "CALL.REL" in old[call].text)
    return next((call for call in calls if int(found[0], 16) == (call + 1) * BYTES), None)


def everywhere(words: int, count: int = 1) -> list[Insertion]:
    """Return NOPs after every instruction."""
    return [Insertion(index, (NOP,) * count) for index in range(1, words + 1)]


def assert_reads_back(
    plain: bytes, new: bytes, to: dict[str, Displacement], added: str = "NOP"
) -> None:
    """The plain text plus exactly what was added, branches and source lines included."""
    before, after = codes(plain), codes(new)
    assert before.keys() == after.keys()
    for name, code in before.items():
        old, now = read(code), read(after[name])
        if name not in to:
            assert now == old
            continue
        expected = moved(old, to[name])
        for at, each in enumerate(now):
            if at in expected:
                assert each == expected[at], f"{name}: {at}"
            else:
                assert each.text == added, f"{name}: {at}"
        assert len(now) >= to[name].count and len(now) % 8 == 0
