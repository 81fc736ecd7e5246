"""Cubins that were damaged: refused, or given records; the disassembler's text is the whole one's.

To start the disassembler takes 0.3 s, and it has faults of its own: ikp's are looked for here.
"""

from __future__ import annotations

from functools import cache
from random import Random
from unittest import mock

from ikp.errors import IkpError
from ikp.probes.patch import patch
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.elf import Elf
from ikp.sass.cubins.module_memory import constants, shared, variables
from ikp.sass.disassembly import tools
from tests.fuzz.limits import limited
from tests.fuzz.mutations import IN_PLACE, RESIZING, how_many
from tests.sass import module

DETAILS = ("kernel", "loops", "waits", "ops")


@cache
def subjects() -> tuple[tuple[bytes, dict[str, str]], ...]:
    """Return cubins, and what the disassembler prints of each function."""
    made = []
    for chip in ("sm_90a", "sm_90a old"):
        cubin = module.cubin(chip)
        file = Cubin.read(cubin)
        symbols = {name: file.kernel(name).symbol for name in module.KERNELS}
        printed = {name: tools.disassemble_function(cubin, name, symbols) for name in symbols}
        made.append((cubin, printed))
    return tuple(made)


def mutated(cubin: bytes, random: Random) -> bytes:
    """Return a cubin with some bytes changed: mostly what says of the code what it is."""
    data = bytearray(cubin)
    elf = Elf.read(cubin)
    head = [(0, 64), (elf.sections_at, 64 * len(elf.sections)), (elf.segments_at, 224)]
    parts = [(one.offset, one.room) for one in elf.sections if one.room]
    named = [
        (one.offset, one.room)
        for one in elf.sections
        if one.room and one.name.startswith((".nv.info", ".symtab", ".rel", ".strtab", ".nv.const"))
    ]
    for _ in range(how_many(random)):
        first, size = random.choice(random.choice((head, parts, named, named, named)))
        change = random.choice(IN_PLACE * 8 + RESIZING)
        at = first + random.randrange(size)
        if at < len(data) > 4:
            change(data, random, at)
    return bytes(data)


def attempt(random: Random) -> str:
    """Put records into one mutated kernel; return what came of it: ``refused`` or ``patched``.

    Raises:
        Exception: a fault of what reads and changes machine code.
    """
    whole, known = random.choice(subjects())
    cubin, name = mutated(whole, random), random.choice(module.KERNELS)
    usual = next(iter(known.values()))

    def text(_: bytes, function: str, __: object) -> str:
        return known.get(function, usual)

    with limited(), mock.patch.object(tools, "disassemble_function", text):
        try:
            constants(cubin), variables(cubin)
            shared(cubin, name, lambda _: 1 << 40)
            patch(
                cubin,
                name,
                detail=random.choice(DETAILS),
                block=random.choice((None, (128, 1, 1))),
                argue=random.random() < 0.5,
                select=random.random() < 0.3,
            )
        except IkpError:
            return "refused"
    return "patched"
