"""The text that nvdisasm prints of a kernel, made from its words and the texts of their forms.

It is made only where all of it is known: a kernel with an instruction of another form, with a
relocation in its code, or with a branch to an address in a register is left to nvdisasm.
"""

from __future__ import annotations

from typing import Final

from ikp.errors import InspectError
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.cubins.source_lines import Place, UnknownTableError, source_lines
from ikp.sass.disassembly.form_texts import texts_of

_COLUMN: Final = 65
"""The columns of an instruction's text, before its first word."""


def composed(file: Cubin, name: str) -> str | None:
    """Return the disassembler's text of a kernel, or None where not all of it is known.

    Reuse flags are left out of the operands, and labels have numbers of their own.

    Args:
        file: a cubin, parsed.
        name: the kernel.
    """
    kernel = file.kernels[name]
    if _is_relocated(file, kernel):
        return None
    try:
        texts = texts_of(file.sm)
        lines = source_lines(file.elf, kernel)
    except (InspectError, UnknownTableError):
        return None
    if texts is None:
        return None
    words = kernel.words.tolist()
    found = [texts.text(low | high << 64) for low, high in words]
    labels: dict[int, str] = {each.start: each.name for each in kernel.functions} | {0: name}
    named: list[str] = []
    for at, each in enumerate(found):
        if each is None:
            return None
        text, distance = each
        if distance is not None:
            target = (at + 1) * BYTES + distance
            if not 0 <= target <= len(words) * BYTES or target % BYTES:
                return None
            text %= f"`({labels.setdefault(target, f'.L_x_{len(labels)}')})"
        named.append(text)
    return _written(file, name, words, named, labels, lines)


def _is_relocated(file: Cubin, kernel: Kernel) -> bool:
    """Whether the loader writes into a kernel's code."""
    return any(
        table.info == kernel.index and len(entries) for table, entries in file.elf.relocations()
    )


def _written(
    file: Cubin,
    name: str,
    words: list[list[int]],
    texts: list[str],
    labels: dict[int, str],
    lines: dict[int, tuple[Place, ...]],
) -> str:
    made = [f"\t.target\tsm_{file.sm}{file.suffix}\n\n//--------------------- .text.{name} "]
    made.append(f"--------------------------\n.text.{name}:\n")
    for at, ((low, high), text) in enumerate(zip(words, texts, strict=True)):
        address = at * BYTES
        if address in labels:
            made.append(f"{labels[address]}:\n")
        for file_name, line in lines.get(address, ()):
            made.append(f'\t//## File "{file_name}", line {line}\n')
        made.append(
            f"        /*{address:04x}*/         {_guarded(text):{_COLUMN}} ;"
            f" /* {low:#018x} */\n{'':100}/* {high:#018x} */\n"
        )
    return "".join(made)


def _guarded(text: str) -> str:
    """Return an instruction with its guard before the column of opcodes."""
    return text if text.startswith("@") else f"          {text}"
