"""What a kernel's PTX says of its records, and which PTX line each instruction comes from.

The inspector follows registers through machine code. This is another way to the same answer: the
assembler's own table from machine code to PTX lines, and the registers' names in the PTX.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.backends.opcodes import TOOLS
from tests.kept import kept

_PTX_LINE = re.compile(r'File "\.nv_debug_ptx_txt", line (\d+)')
_ADDRESS = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/")
_CLOCK = re.compile(r"^mov\.u(?:32|64) (%rd?\d+), %(?:clock|globaltimer_lo|clock64|globaltimer);")
_MOVE = re.compile(r"^\s*mov\.[bu](?:32|64)\s+(%rd?\d+), (%rd?\d+);")
_STORE = re.compile(
    r"^@p st\.(?:global|shared)\.v4\.b32 \[[an]\], \{([^,]+), (%r\d+), (%r\d+), [^}]+\};"
)
_WIDE_STORE = re.compile(
    r"^@p st\.(?:global|shared)\.v2\.b64 \[[an]\], \{(%rd\d+), (%rd\d+)\};"
    r"\n@p st\.(?:global|shared)\.v2\.b32 \[[an]\+16\], \{([^,]+), [^}]+\};"
)


@dataclass(frozen=True)
class Stored:
    """One record store in PTX."""

    tag: int | None  # None: in a register
    starts: frozenset[int]  # lines of the clock reads that its start can come from
    ends: frozenset[int]


@cache
def disassembled(cubin: bytes) -> tuple[str, dict[int, int]]:
    """Return what ikp reads of a cubin, and the PTX line of each instruction, by its address.

    The assembler's table comes with one more option, in lines of its own: to ask for it apart would
    start the disassembler a second time, which takes longer than all that is read of its text.
    """
    text = kept("with PTX lines", cubin, lambda: _printed(cubin))
    own = [line for line in text.splitlines(keepends=True) if not _PTX_LINE.search(line)]
    return "".join(own), _ptx_lines(text)


def _printed(cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [TOOLS / "nvdisasm", "-c", "-hex", "-gi", "-gp", "-ndf", path]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _ptx_lines(text: str) -> dict[int, int]:
    lines, current = {}, 0
    for line in text.splitlines():
        if found := _PTX_LINE.search(line):
            current = int(found[1])
        elif address := _ADDRESS.match(line):
            lines[int(address[1], 16)] = current
    return lines


def stores(ptx: str) -> dict[int, Stored]:
    """Return the record stores of a PTX text, by line."""
    lines = ptx.split("\n")
    clocks: defaultdict[str, set[int]] = defaultdict(set)
    sources: defaultdict[str, set[str]] = defaultdict(set)
    for number, line in enumerate(lines, 1):
        if found := _CLOCK.match(line.strip()):
            clocks[found[1]].add(number)
        if move := _MOVE.match(line):
            sources[move[1]].add(move[2])
    made = {}
    for number, line in enumerate(lines, 1):
        words = ()
        if found := _STORE.match(line.strip()):
            words = found.groups()
        elif found := _WIDE_STORE.match("\n".join(map(str.strip, lines[number - 1 : number + 1]))):
            words = (found[3], found[1], found[2])
        if words:
            tag = int(words[0], 16) if words[0].startswith("0x") else None
            starts, ends = (_reads(word, clocks, sources) for word in words[1:])
            made[number] = Stored(tag, starts, ends)
    return made


def _reads(
    register: str, clocks: dict[str, set[int]], sources: dict[str, set[str]]
) -> frozenset[int]:
    """Return the clock reads that a register can hold, through moves."""
    seen: set[str] = set()
    work = [register]
    while work:
        name = work.pop()
        if name not in seen:
            seen.add(name)
            work += sources.get(name, ())
    return frozenset(line for name in seen for line in clocks.get(name, ()))
