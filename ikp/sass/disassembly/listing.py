"""Parser of nvdisasm's output: functions (``Code``), instructions with their control bits, labels,
source lines.

Control bits are stall, yield, scoreboards taken and awaited, operand reuse. An instruction of
variable latency takes one of six scoreboards for its results, and one for its operands. A later
instruction waits for scoreboards by its mask, right before it is issued.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Word = tuple[int, int]
"""The 128 bits of an instruction: the low 64, then the high 64."""

SCOREBOARDS = 6
NONE = 7
"""The number of the scoreboard in an instruction that takes none."""

_STALL, _YIELD, _WRITES, _READS, _WAITS, _REUSE = 41, 45, 46, 49, 52, 58
"""Where the fields begin in the high half: bits 105, 109, 110, 113, 116 and 122 of the word."""


@dataclass(frozen=True, slots=True)
class Control:
    """The control bits of one instruction."""

    stall: int  # cycles until the warp issues its next instruction, at least
    yields: bool  # the scheduler may prefer another warp
    writes: int | None  # the scoreboard that is released when its results are there
    reads: int | None  # ... when its operands have been read
    waits: frozenset[int]  # scoreboards that must be released before it is issued
    reuse: int  # a bit for each operand that stays in the operand cache

    @classmethod
    def of(cls, word: Word) -> Control:
        """Decode a word."""
        high = word[1]
        mask = high >> _WAITS & 63
        return cls(
            high >> _STALL & 15,
            not high >> _YIELD & 1,
            _scoreboard(high >> _WRITES & 7),
            _scoreboard(high >> _READS & 7),
            frozenset(board for board in range(SCOREBOARDS) if mask >> board & 1),
            high >> _REUSE & 15,
        )


class Controls:
    """The control bits of many instructions, as columns."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self.words = words  # a row each: the low half, the high half

    @classmethod
    def of(cls, bits: Iterable[tuple[str, str]]) -> Controls:
        """Decode words that are written in hexadecimal; "" is a word that was not read."""
        digits = "".join([low + high or "0" * 32 for low, high in bits])
        words = np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64)
        return cls(words.reshape(-1, 2))

    @cached_property
    def writes(self) -> NDArray[np.uint8]:
        """The scoreboard that each releases when its results are there; 7 for none."""
        return self._field(_WRITES, 7)

    @cached_property
    def reads(self) -> NDArray[np.uint8]:
        """The scoreboard that each releases when its operands have been read; 7 for none."""
        return self._field(_READS, 7)

    @cached_property
    def waits(self) -> NDArray[np.uint8]:
        """The scoreboards that each waits for, a bit each."""
        return self._field(_WAITS, 63)

    @cached_property
    def stalls(self) -> NDArray[np.uint8]:
        """Cycles until the next instruction is issued."""
        return self._field(_STALL, 15)

    def _field(self, bit: int, mask: int) -> NDArray[Any]:
        return (self.words[:, 1] >> np.uint64(bit) & np.uint64(mask)).astype(np.uint8)


def _scoreboard(number: int) -> int | None:
    return None if number == NONE else number


_TARGET = re.compile(r"(?:^\s*\.target\s+|EF_CUDA_SM)(?:sm_)?(\w+)", re.MULTILINE)
_PARTS = re.compile(
    r"""^(?:
      [ ]{8}/\*([0-9a-f]++)\*/[ ]++(?:@(!?\w++)[ ]++)?([A-Z][\w.]*+)[ ]*+([^;/\n]*+)
      (?:;?[ ]*+/\*[ ]0x(\w{16})[ ]\*/\n[ ]++/\*[ ]0x(\w{16})[ ]\*/)?
    | \s*//\#\#[ ](.*)
    | ([.$\w]+):
    | //-+[ ]\.text\.(\S+)[ ]+-+$
    )""",
    re.MULTILINE | re.VERBOSE | re.ASCII,
)
"""An instruction, its source line, a label, a section. One expression, which never backtracks in an
instruction, because parsing spends most of its time in it."""
_LINE = re.compile(r'"([^"]*)", line (\d+)')
_TARGETS = re.compile(r"[.$\w]*L_x_\d+|`\(([^)]+)\)")
_PREDICATE = re.compile(r"!?U?P\d")
_COMMENT = re.compile(r"\(\*.*\*\)")
_SCHEDULE = re.compile(r"\s*(?:&\w+=\S+\s+)*\?\w+\s*$")
"""The control bits in words, which the disassembler of CUDA 12.8 adds on sm_120."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of source code."""

    file: str
    number: int


@dataclass(frozen=True, init=False)
class Instruction:
    """One SASS instruction."""

    address: int  # bytes from the start of the kernel
    guard: str  # "P0" or "!P0"; empty where there is none
    opcode: str  # with its modifiers: "LDGSTS.E.BYPASS.128"
    rest: str  # the operands, as nvdisasm writes them
    lines: tuple[Line, ...]  # its source lines, the innermost inlined function first
    bits: tuple[str, str]  # its 128 bits in hexadecimal, the low half first; "" where not read
    op: str = field(init=False, repr=False, compare=False)  # without modifiers: "LDGSTS"
    operands: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The operands, ``.reuse`` and comments left out."""

    def __init__(
        self,
        address: int,
        guard: str,
        opcode: str,
        rest: str,
        lines: tuple[Line, ...] = (),
        bits: tuple[str, str] = ("", ""),
    ) -> None:
        # A kernel has thousands: this takes a third of the time of a dataclass's own __init__.
        vars(self).update(
            address=address,
            guard=guard,
            opcode=opcode,
            rest=rest,
            lines=lines,
            bits=bits,
            op=opcode.partition(".")[0],
            operands=tuple(split(rest)),
        )

    def moved(self, address: int, lines: tuple[Line, ...], bits: tuple[str, str]) -> Instruction:
        """Return the same instruction in another place, with the answers that this one keeps."""
        made = object.__new__(Instruction)
        vars(made).update(vars(self), address=address, lines=lines, bits=bits)
        return made

    @property
    def word(self) -> Word:
        """Its 128 bits, the low half first; zeros where they were not read."""
        low, high = self.bits
        return int(low or "0", 16), int(high or "0", 16)

    @property
    def targets(self) -> tuple[str, ...]:
        """Labels that it names."""
        if "`" not in self.rest and "L_x_" not in self.rest:
            return ()
        return tuple(match[1] or match[0] for match in _TARGETS.finditer(self.rest))

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """The predicates of a jump or an EXIT, like ``!P0``: the jump is taken where all hold.

        The guard is a predicate, and an operand may be another: ``@P0 EXIT P1``.
        """
        return tuple(each for each in (self.guard, *self.operands) if _PREDICATE.fullmatch(each))

    @property
    def control(self) -> Control:
        """Its control bits: stall and scoreboards."""
        return Control.of(self.word)

    @property
    def text(self) -> str:
        """The instruction as ``nvdisasm`` writes it."""
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()

    @property
    def never_runs(self) -> bool:
        """Whether it has no effect: a NOP, or an instruction whose guard is always false.

        Compilers write the latter as padding that works around hardware.
        """
        return self.guard in ("!PT", "!UPT") or self.op == "NOP"


Of = TypeVar("Of")
Found = TypeVar("Found")


def once(asked: Callable[[Of], Found]) -> Callable[[Of], Found]:
    """Decorate a question about an instruction, or code: it is asked once, and keeps its answer."""
    name = f"{asked.__module__}.{asked.__qualname__}"

    @wraps(asked)
    def answer(of: Of) -> Found:
        known: dict[str, Found] = vars(of)
        if name not in known:
            known[name] = asked(of)
        return known[name]

    return answer


def split(rest: str) -> list[str]:
    """Return the operands in the text behind an opcode, ``.reuse`` and comments left out."""
    if "(*" in rest:
        rest = _COMMENT.sub("", rest)
    if ".reuse" in rest:
        rest = rest.replace(".reuse", "")
    rest = rest.strip()
    return rest.split(", ") if rest else []


@dataclass(frozen=True)
class Code:
    """The instructions of one kernel, in the order of their addresses."""

    name: str
    target: str  # "sm_90a"
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]  # label -> index of the instruction behind it

    @property
    def has_lines(self) -> bool:
        """Whether the cubin says which source line an instruction comes from."""
        return any(instruction.lines for instruction in self.instructions)

    @cached_property
    def files(self) -> set[str]:
        """The files of source code that its instructions come from."""
        lines = {id(each.lines): each.lines for each in self.instructions}  # few, many times each
        return {line.file for some in lines.values() for line in some}

    def having(self, wanted: Callable[[str], object]) -> list[int]:
        """Return the instructions whose opcode is wanted; each opcode is asked for once."""
        return sorted(
            chain.from_iterable(ats for opcode, ats in self._by_opcode.items() if wanted(opcode))
        )

    def of(self, *ops: str) -> list[int]:
        """Return the instructions of some operations, with any modifiers."""
        return self.having(lambda opcode: opcode.partition(".")[0] in ops)

    @cached_property
    def _by_opcode(self) -> dict[str, list[int]]:
        """Opcode, with its modifiers -> its instructions: a few hundred opcodes, at the most."""
        found: dict[str, list[int]] = {}
        for at, instruction in enumerate(self.instructions):
            found.setdefault(instruction.opcode, []).append(at)
        return found

    def without(self, first: int, last: int) -> Code:
        """Return the code without the instructions in a range of bytes; addresses are kept."""
        every = self.instructions
        left = [at for at, each in enumerate(every) if not first <= each.address < last]
        new = {at: n for n, at in enumerate([*left, len(every)])}
        labels = {label: new[at] for label, at in self.labels.items() if at in new}
        return replace(self, instructions=tuple(every[at] for at in left), labels=labels)

    @cached_property
    def naming(self) -> dict[int, tuple[str, ...]]:
        """Instruction -> the labels that it names, of those that name any."""
        return {at: some for at, each in enumerate(self.instructions) if (some := each.targets)}

    @cached_property
    def controls(self) -> Controls:
        """The control bits of all instructions, as columns."""
        return Controls.of([i.bits for i in self.instructions])


def parse(text: str) -> list[Code]:
    """Return the functions in the output of ``nvdisasm -c -gi``, in its order.

    With ``-hex``, instructions have their words, too.
    """
    found = _TARGET.search(text)
    target = f"sm_{found[1]}" if found else "unknown"
    target += "a" if "EF_CUDA_ACCELERATORS" in text else ""  # as older files say it
    reader = _Reader()
    for address, guard, opcode, rest, low, high, line, label, section in _PARTS.findall(text):
        if opcode:
            reader.instruction(address, guard, opcode, rest, (low, high))
        elif line:
            reader.line(line)
        else:
            reader.other(label, section)
    return [
        Code(name, target, tuple(instructions), labels)
        for name, instructions, labels in reader.made
        if instructions
    ]


class _Reader:
    """Builds functions from the parts of a text, one by one."""

    def __init__(self) -> None:
        self.made: list[tuple[str, list[Instruction], dict[str, int]]] = []
        self._instructions: list[Instruction] = []
        self._labels: dict[str, int] = {}
        self._lines: tuple[Line, ...] = ()
        self._inlined = False  # the last line was of a chain of inlined functions, one per line
        self._known: dict[str, Line] = {}

    def instruction(
        self, address: str, guard: str, opcode: str, rest: str, bits: tuple[str, str]
    ) -> None:
        self._inlined = False
        if "?" in rest:
            rest = _SCHEDULE.sub("", rest)
        made = Instruction(int(address, 16), guard, opcode, rest, self._lines, bits)
        self._instructions.append(made)

    def line(self, text: str) -> None:
        if (found := self._known.get(text)) is None:
            match = _LINE.search(text)
            if match is None:  # not a line: its file may have any name
                return
            found = self._known[text] = Line(match[1], int(match[2]))
        self._lines = (*(self._lines if self._inlined else ()), found)
        self._inlined = True

    def other(self, label: str, section: str) -> None:
        self._inlined = False
        if label:
            self._labels[label] = len(self._instructions)
        else:
            self._instructions, self._labels, self._lines = [], {}, ()
            self.made.append((section, self._instructions, self._labels))
