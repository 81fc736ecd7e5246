"""``read``: from the bytes of a cubin to its functions, disassembled, with flow and liveness."""

from __future__ import annotations

from typing import Final

from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.composed_text import composed
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.disassembly import tools
from ikp.sass.disassembly.listing import parse

_TOGETHER: Final = 12_000 * 16
"""Bytes of code that take as long to print and keep as the disassembler takes to start."""


def read(cubin: bytes) -> list[Liveness]:
    """Return the functions of a cubin: code, control flow and liveness.

    Raises:
        InspectError: there is no disassembler, or it refuses the file.
    """
    return parsed(tools.disassemble(cubin))


def parsed(text: str) -> list[Liveness]:
    """Return the functions in a text of the disassembler."""
    return [Liveness(Flow(each)) for each in parse(text)]


def text_of(cubin: bytes, file: Cubin, name: str) -> str:
    """Return the disassembler's output for a kernel.

    Where all its instructions are of known forms, it is made without starting the disassembler.

    Args:
        cubin: the file that the compiler wrote.
        file: the same, parsed.
        name: the kernel.

    Raises:
        InspectError: there is no disassembler, or it refuses the kernel.
    """
    made = composed(file, name)
    return made or tools.disassemble_function(cubin, name, _together(file, name))


def _together(file: Cubin, name: str) -> dict[str, int]:
    """Return the symbols of a kernel and of some that follow it in the file, or are at its start.

    A library's next kernel is often one of these.
    """
    names = [*file.kernels]
    at, found, size = names.index(name), dict[str, int](), 0
    for each in (*names[at:], *names[:at]):
        kernel = file.kernels[each]
        size += len(kernel.text.data)
        if found and size > _TOGETHER:
            break
        found[each] = kernel.symbol
    return found
