"""A library to read, analyse and rewrite cubins, the ELF files with NVIDIA's machine code (SASS).

``Cubin.read`` parses the file. ``read`` returns its functions with control flow and liveness, from
which free registers follow. ``insert`` puts instructions between those of a kernel; ``Cubin.write``
returns the new file. Each name is imported when it is first used. docs/rewriting-a-cubin.md has an
example.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ikp.sass.assembly import forms
    from ikp.sass.assembly.assembler import NOP, Step, assemble
    from ikp.sass.assembly.chips import Chip, chip_of
    from ikp.sass.control_flow.flow import Flow, Loop
    from ikp.sass.control_flow.graph import Block, Graph
    from ikp.sass.cubins.capacity import add_constant, set_registers
    from ikp.sass.cubins.cubin import Cubin, Kernel
    from ikp.sass.dataflow.free_registers import RESERVED, FreeRegisters, Spare
    from ikp.sass.dataflow.hazards import ScoreboardHazards
    from ikp.sass.dataflow.liveness import Liveness
    from ikp.sass.dataflow.reading import read
    from ikp.sass.disassembly.effects import Effects, effects
    from ikp.sass.disassembly.listing import Code, Instruction, Line, parse
    from ikp.sass.disassembly.opcodes import Landmark, Work, landmark, work_of
    from ikp.sass.disassembly.tools import disassemble
    from ikp.sass.insertion.displacement import Displacement, Insertion
    from ikp.sass.insertion.insert import OnEdge, insert

_HOMES = {
    "assembly.assembler": "NOP Step assemble",
    "assembly.chips": "Chip chip_of",
    "control_flow.flow": "Flow Loop",
    "control_flow.graph": "Block Graph",
    "cubins.capacity": "add_constant set_registers",
    "cubins.cubin": "Cubin Kernel",
    "dataflow.free_registers": "RESERVED FreeRegisters Spare",
    "dataflow.hazards": "ScoreboardHazards",
    "dataflow.liveness": "Liveness",
    "dataflow.reading": "read",
    "disassembly.effects": "Effects effects",
    "disassembly.listing": "Code Instruction Line parse",
    "disassembly.opcodes": "Landmark Work landmark work_of",
    "disassembly.tools": "disassemble",
    "insertion.displacement": "Displacement Insertion",
    "insertion.insert": "OnEdge insert",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "NOP",
    "RESERVED",
    "Block",
    "Chip",
    "Code",
    "Cubin",
    "Displacement",
    "Effects",
    "Flow",
    "FreeRegisters",
    "Graph",
    "Insertion",
    "Instruction",
    "Kernel",
    "Landmark",
    "Line",
    "Liveness",
    "Loop",
    "OnEdge",
    "ScoreboardHazards",
    "Spare",
    "Step",
    "Work",
    "add_constant",
    "assemble",
    "chip_of",
    "disassemble",
    "effects",
    "forms",
    "insert",
    "landmark",
    "parse",
    "read",
    "set_registers",
    "work_of",
]


def __getattr__(name: str) -> Any:
    if name == "forms":
        return import_module("ikp.sass.assembly.forms")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ikp.sass' has no attribute {name!r}")
    value = getattr(import_module(f"ikp.sass.{_HOME_OF[name]}"), name)
    globals()[name] = value  # the next access finds it without coming here
    return value


def __dir__() -> list[str]:
    return __all__
