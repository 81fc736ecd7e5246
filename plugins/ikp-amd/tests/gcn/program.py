"""AMD assembly, as LLVM prints it and ikp completes it, taken apart for ``machine``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from tests.machines.ptx_program import FaultError

_SET = re.compile(r"^\s*\.set (ikp_\w+), (\d+)$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^\s*\.amdhsa_(\w+) (\d+)$", re.MULTILINE)
_LABEL = re.compile(r"^([.\w$]+):")
_INSTRUCTION = re.compile(r"^\s*([a-z]\w+)(?:\s+(.*))?$")
_REGISTER = re.compile(r"^([sv])(?:(\d+)|\[(\w+)(?::(\w+))?\])$")
_OPERAND = re.compile(r",\s*(?![^(]*\))")


@dataclass(frozen=True)
class Register:
    """``count`` scalar or vector registers from ``first`` on."""

    file: str  # "s", "v", or the name of a special one
    first: int = 0
    count: int = 1


Operand = Register | int | float | str


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``flags`` holds what follows the operands, such as ``offset``."""

    name: str
    operands: tuple[Operand, ...]
    flags: dict[str, int]
    text: str


class Program:
    """A kernel: instructions, where labels stand, and what the hardware sets up."""

    def __init__(self, text: str) -> None:
        self.symbols = {name: int(number) for name, number in _SET.findall(text)}
        self.set_up = {name: int(value) for name, value in _DIRECTIVE.findall(text)}
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.entry = 0  # behind the loads for firmware that does not preload arguments
        metadata = text.partition(".amdgpu_metadata\n")[2].partition(".end_amdgpu_metadata")[0]
        facts = yaml.load(metadata.rstrip("\t\n ."), yaml.CSafeLoader)
        self.kernel: dict[str, Any] = facts["amdhsa.kernels"][0]
        self._read(text.partition("\t.section\t.rodata")[0])

    def _read(self, code: str) -> None:
        for text in code.split("\n"):
            line = text.partition(";")[0].partition("//")[0].strip()
            if found := _LABEL.match(line):
                self.labels[found[1]] = len(self.instructions)
            elif line.split() == [".p2align", "8"] and self.instructions:
                self.entry = len(self.instructions)
            elif (found := _INSTRUCTION.match(line)) and not line.startswith("."):
                self.instructions.append(self._instruction(found[1], found[2] or "", line))

    def _instruction(self, name: str, rest: str, text: str) -> Instruction:
        name = re.sub(r"_e(32|64)$", "", name)
        flags: dict[str, int] = {}
        operands: list[Operand] = []
        if name == "s_waitcnt":
            flags = {key: int(n) for key, n in re.findall(r"(\w+)\((\d+)\)", rest)}
            return Instruction(name, (), flags, text)
        if found := re.search(r"hwreg\(\w+, \d+, \d+\)", rest):
            rest = rest.replace(found[0], found[0].replace(" ", ""))
        parts = _OPERAND.split(rest) if rest else []
        for part in parts:
            word, *more = part.split()
            operands.append(self._operand(word))
            for flag in more:
                key, _, value = flag.partition(":")
                flags[key] = int(value or 1)
        return Instruction(name, tuple(operands), flags, text)

    def _operand(self, word: str) -> Operand:
        if found := _REGISTER.match(word):
            first = self._number(found[2] or found[3])
            last = self._number(found[4]) if found[4] else first
            return Register(found[1], first, last - first + 1)
        name, _, half = word.partition("_")
        if name in {"vcc", "exec"}:
            return Register(name, 1, 1) if half == "hi" else Register(name, 0, 1 if half else 2)
        try:
            return int(word, 0)
        except ValueError:
            pass
        try:
            return float(word)
        except ValueError:
            return word  # a label, "off", a hardware register

    def _number(self, text: str) -> int:
        if text.isdigit():
            return int(text)
        if text not in self.symbols:
            raise FaultError(f"no register is named {text}")
        return self.symbols[text]
