"""Suspects that are taken out of a kernel: which, how, and which are refused."""

from __future__ import annotations

import numpy as np
import pytest

from ikp.errors import PatchError
from ikp.probes.code.entry_code import CELL
from ikp.probes.suspects import Trial, _pair, trials
from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.reading import code_of
from ikp.sass.disassembly.tools import assemble
from tests.probes.test_full import ptx
from tests.sass import compiled
from tests.sass.assembled import cubin, read

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
KERNEL = """.visible .entry k(.param .u64 p, .param .u64 y) .reqntid 128 {{
 .reg .u64 a, b, c, t, u; .reg .u32 s<20>; .reg .f32 f<8>; .reg .pred q, r; .shared .b32 room[256];
 ld.param.u64 a, [p]; ld.param.u64 t, [y]; mov.u32 s1, %tid.x; mov.u32 s2, 0; mov.u32 s9, room;
 mad.wide.u32 b, s1, 4, a; mad.wide.u32 u, s1, 4, t; mad.lo.u32 s8, s1, 4, s9;
 mov.f32 f1, 0f00000000;
{body}
 st.global.f32 [b+65536], f1; ret;
}}
"""
LOOP = """LOOP: .pragma "nounroll";
{}
 add.u32 s2, s2, 1; setp.lt.u32 q, s2, 100; @q bra LOOP;"""

LOADS = LOOP.format(" add.u64 u, u, 512; ld.global.f32 f2, [u+256]; add.f32 f1, f1, f2;")
SPIN = """ red.global.add.u32 [t], s1;
B: ld.volatile.global.u32 s3, [t+128]; setp.eq.u32 q, s3, 0; @q bra B;"""


def tried(body: str, most: int = 9) -> list[Trial]:
    return trials(assemble(HEAD + KERNEL.format(body=body), "PTX"), "k", (128, 1, 1), most)[0]


def texts(code: bytes) -> list[str]:
    return [text for text, _ in read(code) if text != "NOP"]


def by_kind(found: list[Trial]) -> dict[str, Trial]:
    return {each.suspect.kind: each for each in found}


def test_a_load_is_redirected_and_all_else_stays() -> None:
    plain = assemble(HEAD + KERNEL.format(body=LOADS), "PTX")
    found = by_kind(trials(plain, "k", (128, 1, 1), 9)[0])
    load = found["load"]
    assert (load.how, load.suspect.depth) == ("redirected to one line", 1)
    before, after = texts(plain), texts(load.cubin)
    assert after[0].startswith("LDC.64 R") and after[0].endswith("c[0x3][RZ]")
    pair = after[0].split()[1].rstrip(",")
    rest = after[1:]
    (changed,) = [at for at, line in enumerate(before) if line != rest[at] and "BRA" not in line]
    assert "[R" in before[changed] and rest[changed].endswith(f"[{pair}.64]")
    assert pair not in " ".join(before).replace(",", " ").split()
    assert CELL.encode() in load.cubin


def test_a_volatile_load_is_removed() -> None:
    trial = by_kind(tried(LOADS.replace("ld.global", "ld.volatile.global")))["load"]
    assert trial.how == "removed"


def test_copies_to_shared_memory_are_redirected_at_their_source_alone() -> None:
    code = compiled.code("matmul").compiled
    found = trials(code.asm["cubin"], code.metadata.name, (256, 1, 1), 9)[0]
    load = next(each for each in found if each.suspect.kind == "load")
    before, after = read(code.asm["cubin"]), read(load.cubin)
    pair = next(text for text, _ in after if text.startswith("LDC.64")).split()[1].rstrip(",")
    copies = [[text for text, _ in each if "LDGSTS" in text] for each in (before, after)]
    changed = [(a, b) for a, b in zip(*copies, strict=True) if a != b]
    assert len(changed) == len(load.suspect.members) == 12
    for a, b in changed:
        assert a.partition(",")[0] == b.partition(",")[0] and f"[{pair}.64]" in b
        assert a.rpartition(",")[2] == b.rpartition(",")[2]
    words = [[word for text, word in each if "LDGSTS" in text] for each in (before, after)]
    own = 0xFF << 24 | 0xFFF << 32  # the register and the constant of the address in global memory
    assert all((a ^ b) & ~own == 0 for a, b in zip(*words, strict=True))
    assert all(b >> 32 & 0xFFF == 0 for a, b in zip(*words, strict=True) if a != b)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("barrier", "bar.sync 0;"),
        ("atomic", "red.global.add.f32 [t], f1;"),
        ("store", "st.volatile.global.u32 [u], s2;"),
    ],
)
def test_others_are_removed_by_a_guard_that_never_holds(kind: str, line: str) -> None:
    body = LOOP.format(f" {line}")
    plain = assemble(HEAD + KERNEL.format(body=body), "PTX")
    trial = trials(plain, "k", (128, 1, 1), 1)[0][0]
    assert (trial.suspect.kind, trial.how, trial.refused) == (kind, "removed", "")
    words = [Cubin.read(each).kernel("k").words for each in (plain, trial.cubin)]
    changed = np.flatnonzero((words[0] != words[1]).any(axis=1)).tolist()
    assert tuple(changed) == trial.suspect.members
    assert all(texts(trial.cubin)[at] == f"@!PT {texts(plain)[at]}" for at in changed)


def test_those_in_more_loops_come_first_and_the_rest_is_counted() -> None:
    body = " st.volatile.global.u32 [u], s2;\n" + LOOP.format(" bar.sync 0;")
    plain = assemble(HEAD + KERNEL.format(body=body), "PTX")
    found, count = trials(plain, "k", (128, 1, 1), 1)
    assert [each.suspect.kind for each in found] == ["barrier"]
    assert count == 2


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        (
            "load",
            "LOOP: ld.volatile.global.u32 s3, [t]; setp.eq.u32 q, s3, 0; @q bra LOOP;",
            "how often a loop runs depends on it.",
        ),
        (
            "load",
            LOOP.format(
                " ld.volatile.global.u32 s3, [u]; mad.wide.u32 c, s3, 4, t;"
                " ld.volatile.global.f32 f2, [c]; add.f32 f1, f1, f2;"
            ),
            "the address of ",
        ),
        (
            "barrier",
            " st.shared.u32 [s8], s1;\n"
            + LOOP.format(
                " bar.sync 0; ld.volatile.shared.u32 s3, [s8]; mad.wide.u32 c, s3, 4, t;"
                " ld.volatile.global.f32 f2, [c]; add.f32 f1, f1, f2;"
            ),
            "the address of ",
        ),
        (
            "barrier",
            LOOP.format(" bar.sync 1, 128; bar.arrive 2, 256;"),
            "warps that only arrive count on others that wait.",
        ),
        (
            "atomic",
            SPIN,
            "how often a loop runs depends on it.",
        ),
        (
            "load",
            " ld.volatile.global.u32 s3, [u]; setp.eq.u32 q, s3, 0; @q bra A; bar.sync 0; A:",
            "which threads come to a barrier depends on it.",
        ),
    ],
)
def test_what_could_hang_or_fault_is_refused(kind: str, body: str, why: str) -> None:
    trial = by_kind(tried(body))[kind]
    assert trial.refused.startswith(why) and not trial.cubin


def test_barriers_beside_mbarriers_and_descriptors_in_memory_are_refused() -> None:
    code = compiled.code("matmul TMA").compiled
    found = trials(code.asm["cubin"], code.metadata.name, (256, 1, 1), 20)[0]
    why = {each.suspect.kind: each.refused for each in found}
    assert why["barrier"].startswith("mbarriers are made ready")
    assert why["atomic"] == "a descriptor of TMA may lie in what it changes."


def test_another_chip_is_refused() -> None:
    code = compiled.code("matmul sm_80").compiled
    with pytest.raises(PatchError, match="sm_80"):
        trials(code.asm["cubin"], code.metadata.name, (256, 1, 1), 1)


def test_of_a_block_only_its_threads_count() -> None:
    """They decide how many registers leave an SM room for as many blocks."""
    file = Cubin.read(cubin(ptx(40, stored=False), "sm_90a"))
    code = Liveness(Flow(code_of(file.elf.original, file, "k")))
    one, *others = (
        _pair(file, "k", code, block) for block in ((1024, 1, 1), (1, 1024, 1), (1, 1, 1024))
    )
    assert one is not None and all(each == one for each in others)
    assert _pair(file, "k", code, (32, 1, 1)) is None, "more registers would cost blocks"
