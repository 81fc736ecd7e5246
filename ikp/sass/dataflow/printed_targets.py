"""Check that the branch targets that nvdisasm prints are those decoded from the instructions' bits.

An instruction of an unknown form may name a code address, and would keep the old one when code is
inserted before it. The disassembler prints a label for each such address, so text and bits must
agree.
"""

from __future__ import annotations

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.cubins.encodings import places
from ikp.sass.cubins.instruction import BYTES, distances
from ikp.sass.disassembly.listing import Code


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
    known |= dict.fromkeys(relocated(cubin, kernel))
    for number, each in enumerate(code.instructions):
        if "`(" not in each.rest:
            continue
        printed = [code.labels.get(name, 0) * BYTES for name in each.targets]
        if number not in known or known[number] not in (None, *printed):
            raise PatchError(
                f"{kernel.name} has an instruction that names a place in the code in a way that "
                f"is not known here: {each.text!r}, at byte {each.address:#x}. Leave this kernel "
                "out, and report the instruction."
            )


def relocated(cubin: Cubin, kernel: Kernel) -> set[int]:
    """Return the instructions of a kernel that the loader writes into, by their indices."""
    return {
        int(offset) // BYTES
        for section, table in cubin.elf.relocations()
        if section.info == kernel.index
        for offset in table["offset"]
    }
