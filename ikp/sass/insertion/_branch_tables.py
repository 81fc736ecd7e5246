"""Jump tables of indirect branches (BRX), updated to the displaced code."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ikp.errors import PatchError
from ikp.sass.cubins.attributes import Attribute, Code, indirect_branches
from ikp.sass.cubins.cubin import Kernel
from ikp.sass.cubins.elf import Elf
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.insertion.displacement import Displacement


def move_tables(elf: Elf, kernel: Kernel, indirect: Collection[int], to: Displacement) -> None:
    """Replace each target in a kernel's jump tables by its new address; ``indirect`` are its BRX.

    The compiler lists the targets of each BRX in an attribute. Where the kernel's bank 2 of
    constants holds those addresses and no other value, it is the table.

    Raises:
        PatchError: a branch is not listed, or the table holds other values, too.
    """
    listed = [each for each in kernel.attributes if each.code == Code.INDIRECT_BRANCH_TARGETS]
    tables = [table for each in listed for table in indirect_branches(each)]
    if not tables and not indirect:
        return
    targets = {place for table in tables for place in table.targets}
    bank = elf.find(f".nv.constant2.{kernel.name}")
    words = np.frombuffer(bank.data if bank is not None else b"", np.uint32)
    unlisted = {each * BYTES for each in indirect} - {table.branch for table in tables}
    if bank is None or unlisted or set(words.tolist()) != targets:
        raise PatchError(
            f"{kernel.name} has an indirect branch, and where its table of targets lies is not "
            "known: the compiler doesn't list it, or the kernel's constants hold other values too. "
            "Leave this kernel out."
        )
    new = {place: to.landed(place) for place in targets}
    bank.data = np.array([new[place] for place in words.tolist()], np.uint32).tobytes()
    for each in listed:
        each.value = _moved(each, to)


def _moved(attribute: Attribute, to: Displacement) -> bytes:
    words: list[int] = []
    for table in indirect_branches(attribute):
        new = [to.landed(place) for place in table.targets]
        words += [to.moved(table.branch), 0, len(new), *new]
    return np.array(words, np.uint32).tobytes()
