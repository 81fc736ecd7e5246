"""Which instructions name a place: asked of NVIDIA's disassembler, about all that are met."""

from __future__ import annotations

import random
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from ikp.probes.patch import patch
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.instruction import (
    BYTES,
    NARROW,
    PADDING,
    WIDE,
    Words,
    branches,
    names_place,
    opcodes,
    rows,
)
from ikp.sass.disassembly.tool_paths import tool
from ikp.sass.disassembly.tools import printed_code
from tests.sass import test_collectives
from tests.sass.assembled import cubin as assembled
from tests.sass.module import corpus, cubin

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

SHOWN_AS_STORED = (0x949, 0x958)
"""BRX: the disassembler prints the distance itself, not where it leads."""


LIBRARIES = """
0000008f96967239 004fc600000014ff
000000484404723f 000f680000000004
0000000702077243 000fe400000014ff
0000000c0b0c729b 000fe40008000000
00003900000079c9 000f220008000000
03805800101879f1 000fe20008041618
000004ff09097f66 000f6200089e01ff
000000040c0073b6 0005e40008008000
00000008040073bb 0005d80008000405
00000000080073bc 0005e40008000005
000000020c007dbe 000fe8000800013f
"""
"""What no compiler here makes of PTX that is at hand, as libraries for sm_90 have it."""

IN_BULK = "UTMAREDG UBLKRED UBLKPF REDAS"
"""What ptxas makes of ``cp.reduce.async.bulk``, of a prefetch like it, and of ``red.async``."""


def printed(words: Words, chip: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        raw.write_bytes(words.tobytes())
        command = [tool("nvdisasm"), "-b", f"SM{chip}{'a' * (chip >= 90)}", raw]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", text)


MODIFIERS = np.uint64(0x1FFFFF << 10)
"""Of the upper half: where modifiers of an opcode stand. One may say that it has a target."""


def different(cubins: list[bytes], chip: int) -> Words:
    """Return an instruction of each opcode with each set of modifiers."""
    found: dict[tuple[int, int], Words] = {}
    for each in map(Cubin.read, cubins):
        for kernel in each.kernels.values() if each.sm == chip else ():
            forms = np.stack([opcodes(kernel.words), kernel.words[:, 1] & MODIFIERS], axis=1)
            codes, at = np.unique(forms, axis=0, return_index=True)
            found.update(zip(map(tuple, codes.tolist()), kernel.words[at], strict=True))
    return np.array(list(found.values()), np.uint64).reshape(-1, 2)


@pytest.mark.parametrize("chip", [80, 90, 100])
def test_the_disassembler_prints_what_names_no_place_the_same_anywhere(chip: int) -> None:
    own = {80: "sm_80", 90: "sm_90a", 100: "sm_100a"}[chip]
    made = [cubin(own), assembled(test_collectives.PTX, own)]
    words = different([*made, *(path.read_bytes() for path in corpus())], chip)
    ahead = rows([PADDING] * 64)
    here = printed(words, chip)
    there = printed(np.concatenate([ahead, words]), chip)[len(ahead) :]
    assert len(here) == len(words) > 30
    depend = {int(code) for code, a, b in zip(opcodes(words), here, there, strict=True) if a != b}
    named = {int(code) for code in opcodes(words) if names_place(int(code))}
    assert depend <= named
    assert {0x944, 0x945, 0x947, *((0x348, 0x948) if chip == 90 else ())} <= depend


def test_so_it_does_of_what_libraries_have() -> None:
    words = np.array([[int(h, 16) for h in line.split()] for line in LIBRARIES.split("\n")[1:-1]])
    words = words.astype(np.uint64)
    ahead = rows([PADDING] * 64)
    here = printed(words, 90)
    assert here == printed(np.concatenate([ahead, words]), 90)[len(ahead) :]
    named = " ".join(re.split(r"[. ]", each)[0] for each in here)
    assert named == f"I2IP DMMA F2IP UBMSK USETSHMSZ IGMMA TLD {IN_BULK}"
    assert not [hex(code) for code in opcodes(words).tolist() if names_place(code)]


@pytest.mark.parametrize("chip", ["80", "90a", "100a"])
def test_no_opcode_that_is_said_to_name_no_place_has_a_word_that_does(chip: str) -> None:
    """Words of random operands and modifiers, in each form; those that no chip has are left out."""
    draw, words = random.Random(chip), []
    for opcode in (each for each in range(1 << 12) if not names_place(each)):
        for number in range(6):
            registers = sum(draw.getrandbits(8) << at for at in (16, 24, 32))
            modifiers = draw.getrandbits(13) << 8 if number % 2 else 7 << 17
            words.append((registers | 0x7000 | opcode, 0xFC000 << 32 | modifiers | number))
    made = np.array(words, np.uint64)
    ahead = rows([PADDING] * 64)
    here = printed_code(tool("nvdisasm"), chip, made.tobytes())
    there = printed_code(tool("nvdisasm"), chip, np.concatenate([ahead, made]).tobytes())
    assert len(here) > 1000
    assert {at: there.get(at + len(ahead) * BYTES) for at in here} == here


BYTEWISE = """
.visible .entry adds(.param .u64 p)
{
 .reg .u64 a; .reg .u32 x, y, z, i; .reg .pred q;
 ld.param.u64 a, [p]; mov.u32 i, 9; mov.u32 z, 0;
again: ld.global.u32 x, [a]; ld.global.u32 y, [a+4];
 vabsdiff4.u32.u32.u32.add z, x, y, z; vabsdiff.u32.u32.u32 x, x, y;
 add.u32 z, z, x; sub.u32 i, i, 1; setp.ne.u32 q, i, 0; st.global.u32 [a+8], z; @q bra again;
 ret;
}
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_kernel_with_instructions_on_bytes_is_recorded(target: str) -> None:
    code = assembled(BYTEWISE, target)
    found = {int(each) & 0x1FF for each in opcodes(Cubin.read(code).kernel("adds").words)}
    assert found & {0x14, 0x15}
    made = patch(code, "adds", detail="ops", block=(32, 1, 1), untested=True)
    assert "load" in " ".join(made.names)


def test_branches_are_longer_from_hopper_on() -> None:
    assert [branches(sm) for sm in (75, 80, 89)] == [NARROW] * 3
    assert [branches(sm) for sm in (90, 100, 120)] == [WIDE] * 3
