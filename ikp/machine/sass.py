"""Machine code as data: what ``nvdisasm`` prints of a cubin, parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_SECTION = re.compile(r"^//-+ \.text\.(\S+) +-+$")
_TARGET = re.compile(r"(?:^\s*\.target\s+|EF_CUDA_SM)(?:sm_)?(\w+)", re.MULTILINE)
_LABEL = re.compile(r"^([.$\w]+):")
_LINE = re.compile(r'"([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;?\s*$"
)
_TARGETS = re.compile(r"[.$\w]*L_x_\d+|`\(([^)]+)\)")
_COMMENT = re.compile(r"\(\*.*\*\)")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of source code."""

    file: str
    number: int


@dataclass(frozen=True)
class Instruction:
    """One SASS instruction."""

    address: int  # bytes from the start of the kernel
    guard: str  # "P0" or "!P0"; empty where there is none
    opcode: str  # with its modifiers: "LDGSTS.E.BYPASS.128"
    operands: tuple[str, ...]  # ".reuse" left out
    lines: tuple[Line, ...] = ()  # where it comes from, the innermost function first
    targets: tuple[str, ...] = ()  # labels that it names

    @cached_property
    def op(self) -> str:
        """The opcode without modifiers: ``LDGSTS``."""
        return self.opcode.partition(".")[0]

    @property
    def text(self) -> str:
        """The instruction as ``nvdisasm`` writes it."""
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()

    @property
    def never_runs(self) -> bool:
        """Whether its guard is constantly false: padding that works around hardware."""
        return self.guard in ("!PT", "!UPT") or self.op == "NOP"


@dataclass(frozen=True)
class Code:
    """The instructions of one kernel, in the order of their addresses."""

    name: str
    target: str  # "sm_90a"
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]  # label -> index of the instruction that it stands before

    @property
    def has_lines(self) -> bool:
        """Whether the cubin says which source line an instruction comes from."""
        return any(instruction.lines for instruction in self.instructions)


def parse(text: str) -> list[Code]:
    """Return the functions in the output of ``nvdisasm -c -gi``, in its order."""
    found = _TARGET.search(text)
    target = f"sm_{found[1]}" if found else "unknown"
    target += "a" if "EF_CUDA_ACCELERATORS" in text else ""  # as older files say it
    made: list[tuple[str, list[Instruction], dict[str, int]]] = []
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    lines: tuple[Line, ...] = ()
    inlined = False  # the last line was of a chain of inlined functions, one per line
    for line in text.splitlines():
        if section := _SECTION.match(line):
            instructions, labels, lines = [], {}, ()
            made.append((section[1], instructions, labels))
        elif line.lstrip().startswith("//##"):
            file, number = _LINE.findall(line)[0]
            lines = (*(lines if inlined else ()), Line(file, int(number)))
            inlined = True
            continue
        elif label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif made and (instruction := _instruction(line, lines)):
            instructions.append(instruction)
        inlined = False
    return [
        Code(name, target, tuple(instructions), labels)
        for name, instructions, labels in made
        if instructions
    ]


def _instruction(line: str, lines: tuple[Line, ...]) -> Instruction | None:
    found = _INSTRUCTION.match(line)
    if found is None:
        return None
    address, guard, opcode, rest = found.groups()
    targets = tuple(match[1] or match[0] for match in _TARGETS.finditer(rest))
    plain = _COMMENT.sub("", rest).replace(".reuse", "").strip().rstrip(";").strip()
    operands = tuple(part.strip() for part in plain.split(",")) if plain else ()
    return Instruction(int(address, 16), guard or "", opcode, operands, lines, targets)
