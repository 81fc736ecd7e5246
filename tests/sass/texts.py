"""Machine code as nvdisasm writes it, from lines that a test gives."""

from __future__ import annotations

from ikp.sass.disassembly.effects import FILES
from ikp.sass.disassembly.listing import Code, Instruction, parse

HEAD = """\t.target\tsm_90a

//--------------------- .text.k --------------------------
k:
.text.k:
"""


def sass(*lines: str) -> Code:
    """Return code from lines like ``"@P0 BRA `(.L_x_1)"``; one ending in a colon is a label."""
    text, address = HEAD, 0
    for line in lines:
        if line.endswith(":") or line.lstrip().startswith("//"):
            text += f"{line}\n"
        else:
            text += f"        /*{address:04x}*/                   {line} ;\n"
            address += 16
    (code,) = parse(text)
    return code


def one(text: str) -> Instruction:
    return sass(text).instructions[0]


def names(members: int) -> list[str]:
    """Return the names of a set's members, in the order of their bits."""
    return [
        f"{file.prefix}{at}"
        for file in FILES.values()
        for at in range(file.count)
        if members >> (file.first + at) & 1
    ]
