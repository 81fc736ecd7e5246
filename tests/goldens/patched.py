"""Views of a patched kernel: what is recorded, the code put in, and what the verifier finds wrong.

Each kernel is patched in some of the ways that there are; all of them occur in the corpus.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ikp.core.abi import Language
from ikp.core.segment import Selection
from ikp.errors import IkpError
from ikp.probes.access_probes import patch_accesses
from ikp.probes.code.reserved_registers import Cell
from ikp.probes.made_patch import Patch
from ikp.probes.patch import DETAILS, _instrumented, _Setting, _wanted, patch
from ikp.probes.placement import register_choice
from ikp.probes.points.probe_points import ProbeRegions
from ikp.probes.suspects import trials
from ikp.sass.cubins.capacity import LANES
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.insertion.displacement import Insertion
from ikp.sass.insertion.insert import OnEdge
from ikp.verifier.declared import Declared
from ikp.verifier.verify import faults
from tests.goldens.views import Lines, Subject, shown

_BLOCK = (128, 1, 1)
_WAYS: tuple[dict[str, Any], ...] = (
    {"detail": "ops", "block": _BLOCK},
    {"detail": "loops", "block": _BLOCK, "select": True, "flat": True},
    {"detail": "waits", "block": (64, 3, 1), "argue": True, "sure": True},
    {"detail": "ops", "block": _BLOCK, "spare": True, "flat": True, "sure": True},
    {"detail": "kernel", "block": None, "argue": True, "flat": True},
    {"detail": "ops", "block": _BLOCK, "blocks": Selection(block_step=3, block_count=5)},
    {
        "detail": "loops", "block": (256, 1, 1), "sure": True,
        "blocks": Selection(first_block=2, block_step=4, block_count=9, others=True),
    },
    {"detail": "ops", "block": (32, 1, 1), "select": True, "argue": True},
    {"detail": "ops", "block": (96, 2, 1), "max_overhead": 1.2, "shared": 20_000},
    {"detail": "loops", "block": (33, 1, 1), "ranges": True},
    {"detail": "waits", "block": (1024, 1, 1), "sure": True},
    {"detail": "kernel", "block": _BLOCK, "lines": True},
    {"detail": "loops", "block": (512, 1, 1), "lines": True, "select": True},
)  # fmt: skip
"""Ways to patch a kernel; ``lines`` are some of its own."""
_EACH = 3
"""In how many of them each kernel is."""


def ways(subject: Subject) -> list[dict[str, Any]]:
    """Return the ways in which a kernel is patched: by its name, so that others stay."""
    draw = random.Random(subject.name + subject.number)
    return [_WAYS[0], *draw.sample(_WAYS[1:], _EACH - 1)]


def _chosen(subject: Subject) -> list[Lines]:
    """Return some lines of a kernel: the middle one alone, and the first two."""
    own = sorted(
        {(each.file, each.number) for i in subject.flow.code.instructions for each in i.lines}
    )
    if not own:
        return []
    file, number = own[len(own) // 2]
    return [Lines(number, number, file), Lines(own[0][1], own[0][1] + 1, own[0][0])]


def made(subject: Subject, way: dict[str, Any]) -> Patch:
    """Return a kernel patched in one way."""
    given = {**way, "lines": _chosen(subject) if way.get("lines") else ()}
    return patch(subject.cubin, subject.name, ptx=subject.ptx, untested=True, **given)


def _words(cubin: bytes, name: str, spans: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Yield the inserted code, a line for each run of instructions."""
    text = Cubin.read(cubin).kernel(name).text.data
    for first, end in spans:
        words = [text[at : at + BYTES][::-1].hex() for at in range(first, end, BYTES)]
        yield f"  {first // BYTES:4} {' '.join(words)}"


def patches(subject: Subject) -> Iterator[str]:
    """Yield what is put into a kernel, in each way."""
    for way in ways(subject):
        yield f"patched with {shown(way)}"
        try:
            found = made(subject, way)
        except IkpError as error:
            yield f"  refused: {error}"
            continue
        yield f"  names {shown(found.names)} notes {shown(found.notes)} {shown(found.messages)}"
        facts = replace(found, cubin=b"", names=(), notes=(), messages=(), ours=(), declared=None)
        yield f"  {shown(facts)}"
        yield from _words(found.cubin, subject.name, found.ours)
        yield f"  file {hashlib.sha256(found.cubin).hexdigest()}"


def watched(subject: Subject) -> Iterator[str]:
    """Yield what is put into a kernel to see its addresses, and its copies without suspects."""
    for grid, block, detail in (((300, 2, 1), _BLOCK, "ops"), ((8, 1, 1), (24, 4, 1), "loops")):
        try:
            found = patch_accesses(
                subject.cubin, subject.name, grid, block, detail=detail, ptx=subject.ptx
            )
        except IkpError as error:
            yield f"refused: {error}"
            continue
        for site in found.sites:
            yield f"  {site.index} {site.text} {shown(site.access)} in {site.range!r}"
        yield f"  sample {shown(found.sample)} tables {shown(found.tables)}"
        yield f"  left out {shown(found.left_out)}"
        yield from _words(found.cubin, subject.name, found.declared.inserted)
    try:
        found_trials, count = trials(subject.cubin, subject.name, _BLOCK, 6)
    except IkpError as error:
        yield f"refused: {error}"
        return
    yield f"{count} suspects"
    for each in found_trials:
        digest = hashlib.sha256(each.cubin).hexdigest()[:16]
        yield f"  {shown(each.suspect)} {each.how} {each.refused} {digest}"


def placed(subject: Subject) -> Iterator[str]:
    """Yield the probes of a kernel that is in no file, and where they are."""
    for way in ways(subject):
        size, select = [*(way["block"] or ())], way.get("select", False)
        most, code = way.get("max_overhead"), subject.liveness
        warps = register_choice.warps_of(math.prod(size)) if size else None
        counts = register_choice.register_counts(subject.registers, warps, subject.chip)
        places = ProbeRegions(subject.flow, "", rows=bool(size) and size[0] % LANES == 0)
        cell = Cell(0, subject.chip.parameters + 0x40) if way.get("argue") else Cell(3, 0x18)
        setting = _Setting(
            *(cell, size, Language.OTHER, subject.chip, places.regions, select),
            *(way.get("blocks"), way.get("flat", False), way.get("sure", False)),
        )
        yield f"placed with {shown(way)}"
        try:
            wanted, expected = _wanted(places, DETAILS[way["detail"]], most, 4)
            count, found, added = _instrumented(FreeRegisters(code), wanted, counts, setting)
        except IkpError as error:
            yield f"  refused: {error}"
            continue
        yield f"  {count} {shown(found.names)} {shown(found.notes)} {found.most} {found.margin}"
        yield f"  {shown(expected)} {shown(found.frame)}"
        inserted: list[Insertion | OnEdge] = [*added, *found.on_edges()]
        for each in inserted:
            at = each.branch if isinstance(each, OnEdge) else each.index
            kind = f"{type(each).__name__.lower()} {getattr(each, 'skipped', '')}"
            yield f"  {at:4} {kind} {' '.join(f'{word:032x}' for word in each.words)}"


_FAULTS = 18


def verified(subject: Subject) -> Iterator[str]:
    """Yield what the verifier finds in patches with a fault each."""
    way = ways(subject)[-1]
    try:
        found = made(subject, way)
    except IkpError as error:
        yield f"refused: {error}"
        return
    declared, draw = found.declared, random.Random(subject.name)
    assert declared is not None
    for number in range(_FAULTS):
        how = _KINDS[number % len(_KINDS)]
        cubin, said = how(found.cubin, declared, draw)
        wrong = faults(subject.cubin, cubin, subject.flow.code, said)
        yield f"{number} {how.__name__.strip('_')}: {shown(wrong)}"


Fault = Callable[[bytes, Declared, random.Random], tuple[bytes, Declared]]


def _edited(cubin: bytes, name: str, at: int, change: Callable[[int], int]) -> bytes:
    """Return a cubin with one instruction changed."""
    made_, kernel = Cubin.read(cubin), None
    kernel = made_.kernel(name)
    text = bytearray(kernel.text.data)
    word = int.from_bytes(text[at : at + BYTES], "little")
    text[at : at + BYTES] = (change(word) % (1 << 128)).to_bytes(BYTES, "little")
    kernel.text.data = bytes(text)
    return made_.write()


def _inserted(declared: Declared, draw: random.Random) -> int:
    """Return the place of an inserted instruction."""
    first, end = draw.choice(declared.inserted)
    return draw.randrange(first, end, BYTES)


def _register(cubin: bytes, declared: Declared, draw: random.Random) -> tuple[bytes, Declared]:
    at, field, value = _inserted(declared, draw), draw.choice((16, 24, 32, 64)), draw.randrange(64)
    change = lambda word: word & ~(0xFF << field) | value << field  # noqa: E731
    return _edited(cubin, declared.kernel, at, change), declared


def _control(cubin: bytes, declared: Declared, draw: random.Random) -> tuple[bytes, Declared]:
    at = _inserted(declared, draw)
    first, width = draw.choice(((105, 4), (110, 3), (113, 3), (116, 6)))
    value = draw.randrange(1 << width)
    change = lambda word: word & ~((1 << width) - 1 << first) | value << first  # noqa: E731
    return _edited(cubin, declared.kernel, at, change), declared


def _gone(cubin: bytes, declared: Declared, draw: random.Random) -> tuple[bytes, Declared]:
    at, nop = _inserted(declared, draw), 0x000FC000 << 96 | 0x7918
    return _edited(cubin, declared.kernel, at, lambda _: nop), declared


def _bit(cubin: bytes, declared: Declared, draw: random.Random) -> tuple[bytes, Declared]:
    size, flipped = len(Cubin.read(cubin).kernel(declared.kernel).text.data), draw.randrange(105)
    at = draw.randrange(0, size, BYTES)
    return _edited(cubin, declared.kernel, at, lambda word: word ^ 1 << flipped), declared


def _guard(cubin: bytes, declared: Declared, draw: random.Random) -> tuple[bytes, Declared]:
    at, value = _inserted(declared, draw), draw.randrange(16)
    change = lambda word: word & ~(0xF << 12) | value << 12  # noqa: E731
    return _edited(cubin, declared.kernel, at, change), declared


def _table(cubin: bytes, declared: Declared, draw: random.Random) -> tuple[bytes, Declared]:
    made_ = Cubin.read(cubin)
    parts = [e for e in made_.elf.sections if e.data and not e.name.startswith((".text", ".debug"))]
    each = draw.choice(parts)
    data = bytearray(each.data)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    each.data = bytes(data)
    return made_.elf.write(), declared


def _said(cubin: bytes, declared: Declared, draw: random.Random) -> tuple[bytes, Declared]:
    at = draw.randrange(len(declared.inserted))
    first, end = declared.inserted[at]
    longer = [*declared.inserted]
    longer[at] = (first, end + draw.choice((-1, 1)) * BYTES)
    choices = (
        {"inserted": tuple(longer)},
        {"registers": declared.registers + draw.choice((-8, 8))},
        {"cell": declared.cell + 8},
        {"nbytes": declared.nbytes - 8},
        {"bank": 3 - declared.bank},
        {"watches": not declared.watches},
    )
    return cubin, replace(declared, **draw.choice(choices))


_KINDS: tuple[Fault, ...] = (
    _register,
    _control,
    _gone,
    _bit,
    _guard,
    _register,
    _control,
    _table,
    _said,
)

VIEWS: dict[str, Callable[[Subject], Iterator[str]]] = {
    "patches": patches,
    "watched": watched,
    "verified": verified,
}
"""The views of kernels in files, by name."""
