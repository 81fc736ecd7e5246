"""The life ranges that nvdisasm prints beside the code, as arrays.

``nvdisasm -c -plr -lrm narrow`` draws a column for each register::

    // |     0000000000111  |           |
    // |     0123456789012  |           |
    // |   # 0123456789012  | # 012345  |
    /*0000*/  MOV R1, R2 ;  // |   2  ^v      |           |

``^`` is a definition, ``v`` a use, ``x`` both, ``:`` a value that is kept. It prints none of files
of another version than its own.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ikp.sass.disassembly.effects import BITS, FILES, File
from ikp.sass.disassembly.tool_paths import tool

_SECTION = re.compile(r"-* \.text\.(\S+) +-+$")
_HEAD = re.compile(r"// \|(.*#.*)\|\s*$", re.MULTILINE)
_TITLES = re.compile(r"// \|(.*GPR.*)\|\s*$", re.MULTILINE)
_NAMES = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}
_LIVE = np.zeros(256, dtype=np.bool_)
_LIVE[[ord(sign) for sign in "vx:"]] = True

Ranges = NDArray[np.bool_]
"""What is live before each instruction: a row each, but for the padding at the end; a column for
each bit of ``resources``."""


def printed(cubin: bytes) -> str:
    """Return what nvdisasm prints; nothing where it prints no life ranges of such a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [tool("nvdisasm"), "-c", "-plr", "-lrm", "narrow", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode or "Cannot print life ranges" in done.stderr
    return "" if done.returncode else done.stdout


def read(text: str) -> dict[str, Ranges]:
    """Return the life ranges of each function; those that are not understood are left out."""
    found = {}
    for part in f"\n{text}".split("\n//-")[1:]:
        head, _, body = part.partition("\n")
        section = _SECTION.match(head)
        ranges = _function(body) if section else None
        if section and ranges is not None:
            found[section[1]] = ranges
    return found


def _function(body: str) -> Ranges | None:
    titles, head = _TITLES.search(body), _HEAD.search(body)
    rows = _rows(body)
    if not (titles and head and rows) or {len(row) for row in rows} != {len(head[1])}:
        return None
    letters = np.frombuffer("".join(rows).encode("ascii"), dtype=np.uint8)
    live = _LIVE[letters.reshape(len(rows), -1)]
    made = np.zeros((len(rows), BITS), dtype=np.bool_)
    at = 0
    for title, column in zip(titles[1].split("|"), head[1].split("|"), strict=True):
        file, first = FILES[_NAMES[title.strip()]], column.index("#") + 2
        digits = column[first:].rstrip()
        if not _counts(digits, file):
            return None
        start = at + first
        made[:, file.first : file.first + len(digits)] = live[:, start : start + len(digits)]
        at += len(column) + 1
    return made


def _rows(body: str) -> list[str]:
    """Return what stands beside each instruction; nothing where an address is left out."""
    rows: list[str] = []
    for line in body.split("\n"):
        if line.startswith("        /*"):
            code, _, row = line.partition("// |")
            if row and int(code[10 : code.index("*", 10)], 16) != 16 * len(rows):
                return []
            if row:
                rows.append(row.rpartition("|")[0])
    return rows


def _counts(digits: str, file: File) -> bool:
    """Whether columns are numbered from 0 on, without a gap."""
    return len(digits) <= file.count and all(
        digit == str(at % 10) for at, digit in enumerate(digits)
    )
