"""``read``: from the bytes of a cubin to its functions, disassembled, with flow and liveness.

A kernel's code as nvdisasm prints it is made from the words and the texts of their forms, where all
of it is known. nvdisasm itself prints a kernel with an instruction of another form, a relocation in
its code, or a branch to an address in a register.

An instruction of an unknown form may name a code address, and would keep the old one when code is
inserted before it. nvdisasm prints a label for each such address. So ``check_targets`` checks that
the printed targets are those in the instructions' bits.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import starmap
from typing import Final

from ikp.errors import InspectError, PatchError
from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.instruction import BYTES, distances, places
from ikp.sass.cubins.source_lines import Place, UnknownTableError, source_lines
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.disassembly import tools
from ikp.sass.disassembly.effects import effects
from ikp.sass.disassembly.form_texts import FormTexts, texts_of
from ikp.sass.disassembly.listing import Code, Controls, Instruction, Line, parse


def composed(file: Cubin, name: str) -> Code | None:
    """Return a kernel's code as the disassembler prints it, or None where not all of it is known.

    Reuse flags are left out of the operands, and labels have numbers of their own.

    Args:
        file: a cubin, parsed.
        name: the kernel.
    """
    kernel = file.kernels[name]
    tables = _tables(file, kernel)
    if tables is None:
        return None
    texts, lines = tables
    words, digits = kernel.words.tolist(), kernel.words.astype(">u8").tobytes().hex()
    starts = range(0, len(words) * BYTES + 1, BYTES)  # of instructions, and behind the last
    labels = {each.start: each.name for each in kernel.functions} | {0: name}
    made, line, named = list[Instruction](), tuple[Line, ...](), list[int]()
    for at, (low, high) in enumerate(words):
        found = texts.text(low | high << 64)
        if found is None:
            return None
        text, distance = found
        if distance is not None:
            target = (at + 1) * BYTES + distance
            if target not in starts:
                return None
            named.append(at)
            text %= f"`({labels.setdefault(target, f'.L_x_{len(labels)}')})"
        if places := lines.get(at * BYTES):
            line = tuple(starmap(_line, places))
        bits = digits[32 * at : 32 * at + 16], digits[32 * at + 16 : 32 * at + 32]
        made.append(_instruction(text).moved(at * BYTES, line, bits))
    numbers = {label: at // BYTES for at, label in labels.items() if at < len(words) * BYTES}
    code = Code(name, f"sm_{file.sm}{file.suffix}", tuple(made), numbers)
    # As if asked for before: what is known here is not read out of the texts again.
    naming = {at: made[at].targets for at in named}
    files = {each for at in lines if at < len(words) * BYTES for each, _ in lines[at]}
    vars(code).update(controls=Controls(kernel.words), naming=naming, files=files)
    return code


def _tables(file: Cubin, kernel: Kernel) -> tuple[FormTexts, dict[int, tuple[Place, ...]]] | None:
    """Return the texts of the chip's forms, and the kernel's lines; None where not all is known.

    A relocation says that the linker fills a field in: its text is not known.
    """
    if len(file.relocated(kernel)):
        return None
    try:
        texts = texts_of(file.sm)
        lines = source_lines(file.elf, kernel)
    except (InspectError, UnknownTableError):
        return None
    return None if texts is None else (texts, lines)


@lru_cache(1 << 12)
def _line(file: str, number: int) -> Line:
    """Return a line: one object, which sets of lines then find by identity."""
    return Line(file, number)


@lru_cache(1 << 12)
def _instruction(text: str) -> Instruction:
    """Return an instruction by its text, with its effects: half of a kernel's were seen before."""
    guard = ""
    if text[0] == "@":
        guard, _, text = text[1:].partition(" ")
    opcode, _, rest = text.lstrip().partition(" ")
    made = Instruction(0, guard, opcode, rest.strip())
    effects(made)
    return made


_TOGETHER: Final = 12_000 * 16
"""Bytes of code that take as long to print and keep as the disassembler takes to start."""


def read(cubin: bytes) -> list[Liveness]:
    """Return the functions of a cubin: code, control flow and liveness.

    Raises:
        InspectError: there is no disassembler, or it refuses the file.
    """
    return [Liveness(Flow(each)) for each in parse(tools.disassemble(cubin))]


def code_of(cubin: bytes, file: Cubin, name: str) -> Code:
    """Return a kernel's code as the disassembler prints it.

    Where all its instructions are of known forms, it is made without starting the disassembler.

    Args:
        cubin: the file that the compiler wrote.
        file: the same, parsed.
        name: the kernel.

    Raises:
        InspectError: there is no disassembler, or it refuses the kernel.
        PatchError: it prints no code of the kernel.
    """
    if (made := composed(file, name)) is not None:
        return made
    text = tools.disassemble_function(cubin, name, _together(file, name))
    for code in parse(text):
        if code.name == name:
            return code
    raise PatchError(f"the disassembler shows no code of {name}.")


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


def check_targets(cubin: Cubin, kernel: Kernel, code: Code) -> None:
    """Refuse a kernel with an instruction whose printed target is not the one in its bits.

    Args:
        cubin: the file.
        kernel: the kernel's sections and words.
        code: the kernel as the disassembler prints it.

    Raises:
        PatchError: there is such an instruction.
    """
    words = kernel.words
    found = places(words, cubin.sm, kernel.name)
    known: dict[int, int | None] = {}
    for field, at in (*found.jumps, *found.joins):
        targets = (at + 1) * BYTES + distances(words[at], field)
        known |= dict(zip(at.tolist(), targets.tolist(), strict=True))
    # A base is the code's start, with any label; the loader writes relocated fields.
    known |= dict.fromkeys((int(each) for _, at in found.bases for each in at))
    known |= dict.fromkeys(cubin.relocated(kernel).tolist())
    for number, names in code.naming.items():
        each = code.instructions[number]
        if "`(" not in each.rest:
            continue
        printed = [code.labels.get(name, 0) * BYTES for name in names]
        if number not in known or known[number] not in (None, *printed):
            raise PatchError(
                f"{kernel.name} has an instruction that names a place in the code in a way that "
                f"is not known here: {each.text!r}, at byte {each.address:#x}. Leave this kernel "
                "out, and report the instruction."
            )
