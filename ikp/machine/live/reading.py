"""From the bytes of a cubin to its functions, with all that the disassembler says of them."""

from __future__ import annotations

from ikp.machine.control_flow.flow import Flow
from ikp.machine.disassembly import life_ranges, tools
from ikp.machine.disassembly.sass import parse
from ikp.machine.live.liveness import Liveness


def read(cubin: bytes, function: int | None = None) -> list[Liveness]:
    """Return the functions of a cubin: code, control flow and what is live.

    Args:
        cubin: the file that the compiler wrote.
        function: the symbol of the one that is wanted; without it, all of them.

    Raises:
        InspectError: there is no disassembler, or it refuses the file.
    """
    code, beside = tools.texts(cubin, function=function)
    printed = life_ranges.read(beside)
    return [Liveness(Flow(each), printed.get(each.name)) for each in parse(code)]
