"""What machine instructions are called and whether they read a clock, from their bits."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import triton

from tests.kept import kept

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
CLOCKS = re.compile(r"SR_(CLOCKLO|GLOBALTIMERLO)\b")
NOP = 0x918
"""What fills machine code up to its alignment."""

Word = tuple[int, int]
"""The 128 bits of an instruction, the low half first."""

_CLOCKS = {0x50, 0x52}  # SR_CLOCKLO, SR_GLOBALTIMERLO
_READS = {0x805, 0x919, 0x9C3}  # CS2R, S2R, S2UR: of special registers
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,5}\*/\s+(.*?)\s*;\s+/\* 0x([0-9a-f]{16}) \*/")
_names = {NOP: "NOP"}


def number(word: Word) -> int:
    """Return the bits that say what an instruction is called, on every GPU."""
    return word[0] & 0xFFF


def reads_clock(word: Word) -> bool:
    """Whether an instruction reads the clock that records hold."""
    return number(word) in _READS and word[1] >> 8 & 0xFF in _CLOCKS


def words_of(cubin: bytes) -> tuple[Word, ...]:
    """Return the instructions of a cubin, without the padding."""
    words = struct.iter_unpack("<QQ", text_of(cubin))
    return tuple(word for word in words if number(word) != NOP)


def names(cubin: bytes) -> list[str]:
    """Return the opcode of each instruction of a cubin, without modifiers: ``STG``.

    To start the disassembler takes longer than to compile most kernels. It reads those in which
    there is an instruction of a new kind, and must call all others what it called them before.
    """
    words = words_of(cubin)
    if any(number(word) not in _names for word in words):
        for text, low in _instructions(cubin):
            known = _names.setdefault(int(low, 16) & 0xFFF, opcode(text))
            assert known == opcode(text), f"{low} is {known}, or {text}"
    return [_names[number(word)] for word in words]


def opcode(instruction: str) -> str:
    """Return the opcode of an instruction's text, without its guard and modifiers."""
    words = instruction.split()
    return words[1 if words[0].startswith("@") else 0].split(".")[0]


def texts(cubin: bytes) -> list[str]:
    """Return the text of each instruction of a cubin, without the padding."""
    return [text for text, _ in _instructions(cubin) if opcode(text) != "NOP"]


def _instructions(cubin: bytes) -> list[tuple[str, str]]:
    return _INSTRUCTION.findall(disassembled(cubin))


@cache
def disassembled(cubin: bytes) -> str:
    """Return what cuobjdump prints of machine code, with addresses."""
    return kept("cuobjdump", cubin, lambda: _printed(cubin))


def _printed(cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [TOOLS / "cuobjdump", "-sass", path]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def text_of(cubin: bytes) -> bytes:
    """Return what the sections ``.text`` of a cubin hold: 16 bytes for each instruction."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<3H", cubin, 58)
    headers = [struct.unpack_from("<2I4Q", cubin, table + at * size) for at in range(count)]
    (*_, strings, _) = headers[names]
    return b"".join(
        cubin[offset : offset + length]
        for name, *_, offset, length in headers
        if cubin.startswith(b".text.", strings + name)
    )
