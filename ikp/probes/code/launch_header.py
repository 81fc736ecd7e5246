"""Probe code that writes the launch header; stores of the headers and records of warps.

One thread of the launch's first warp writes the launch header.

Stores take uniform or per-thread addresses. A uniform address is a pair of uniform registers, to
which a register of each thread's is added, or RZ. A per-thread address is two registers of each
thread's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ikp.core import abi, launch_fields
from ikp.core.abi import ClockKind, Language, OverflowMode
from ikp.core.launch_fields import ROW_BYTES, Origin
from ikp.probes.code.reserved_registers import PLACES, EntryRegisters, Frame, NearGround
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import NOP, Step, reordered
from ikp.sass.assembly.forms import RZ

RECORD_BITS: Final = abi.RECORD_BYTES.bit_length() - 1
QUAD: Final = 16
"""Bytes of four registers, the most that one store takes."""
_BEYOND: Final = abi.LAUNCH_HEADER_BYTES
"""Addresses in uniform registers are too low by so much: the size of a launch header."""


def elected(frame: Frame, predicate: int) -> list[Step]:
    """Return the code that sets a predicate in one thread of a warp that records."""
    f = forms
    return [f.elect(predicate), f.below(predicate, RZ, frame.room, where=predicate)]


def put_header(frame: Frame, address: int, beyond: int, value: int, words: int = 4) -> Step:
    """Return a store into a warp's header, so many bytes behind the address in registers."""
    return _put(frame, frame.header, address, beyond, value, words)


def put_record(frame: Frame, address: int, beyond: int, value: int, words: int) -> Step:
    """Return a store into a warp's records, so many bytes behind the address in registers."""
    return _put(frame, frame.records, address, beyond, value, words)


def _put(frame: Frame, pair: int, address: int, beyond: int, value: int, words: int) -> Step:
    if frame.near:
        return forms.store_near(address, pair, _BEYOND + beyond, value, words)
    return forms.store(address, beyond, value, words, frame.descriptor)


_Make = Callable[[int, int], list[Step]]
"""Returns steps that put a value into a register: the first of four free ones, and which it is."""
_Put = Callable[[int, int, int], Step]
"""Returns the store of registers: the offset in the header, the first one, and how many."""


class HeaderValues(NamedTuple):
    """What a launch header says of its kernel."""

    whole: int  # the id of the range from each warp's entry to its exit
    language: Language = Language.OTHER
    margin: int = 0  # how many records a warp may write behind the last that it keeps


def launch_header(
    frame: Frame, ground: EntryRegisters, warps: int, values: HeaderValues
) -> list[Step]:
    """Return the code that writes the header at the cell's address.

    The register ``warps`` has the number of a block's warps.
    """
    f, ok = forms, ground.predicate

    def put(offset: int, value: int, words: int) -> Step:
        return f.store(ground.cell, offset, value, words, frame.descriptor).when(ok)

    def count(offset: int, value: int) -> Step:
        return f.count_up(ground.cell, offset, value, frame.descriptor).when(ok)

    # Where some warps are selected, the launch's first warp need not be one of them.
    some = frame.selection is not None
    first = [f.elect(ok), f.below_other(ok, RZ, ground.sizes, where=ok)]
    given = {
        **_given(frame, values),
        Origin.WARPS: lambda _, into: [f.copy(into, warps)],
        Origin.SLOT_BYTES: lambda _, into: [f.copy(into, ground.sizes)],
        Origin.LAUNCHES: _immediate(1),
    }
    body = [
        *(first if some else elected(frame, ok)),
        *_written(given, ground.quads, put, count),
    ]
    return _settled(body, ground.scoreboard)


def launch_header_near(frame: Frame, ground: NearGround, values: HeaderValues) -> list[Step]:
    """Return the code that writes the header where uniform registers hold addresses.

    The warp's slot is the first: the address kept for its slot header is the launch header's.
    """
    f, ok = forms, ground.predicate
    which, launches = ground.quads[0], abi.field_offsets(abi.LAUNCH_HEADER)["launches"]

    def put(offset: int, value: int, words: int) -> Step:
        return f.store_near(RZ, frame.header, offset, value, words).when(ok)

    def slot_bytes(quad: int, into: int) -> list[Step]:
        room, record, more = (each for each in range(quad, quad + 4) if each != into)
        beside = abi.DENSE_HEADER_BYTES + abi.RECORD_BYTES * values.margin
        return [
            *[f.from_uniform(room, frame.room), f.immediate(record, abi.RECORD_BYTES)],
            *[f.immediate(more, beside), f.multiply(into, room, record, more)],
        ]

    given = {
        **_given(frame, values),
        Origin.WARPS: _immediate(frame.warps or 1),
        Origin.SLOT_BYTES: slot_bytes,
    }
    body = [
        *elected(frame, ok),
        f.constant(ground.pair, 0, PLACES.descriptor, pair=True),
        *_written(given, ground.quads, put, first=Origin.SLOT_BYTES),
        *[f.from_uniform(which, frame.header), f.from_uniform(which + 1, frame.header + 1)],
        f.immediate(which + 2, 1),
        f.count_up(which, launches, which + 2, ground.pair).when(ok),
    ]
    return _settled(body, ground.scoreboard)


def _given(frame: Frame, values: HeaderValues) -> dict[str, _Make]:
    """Return how the values are made that are made alike wherever the header's address is."""
    grid = (Origin.GRID_X, Origin.GRID_Y, Origin.GRID_Z)
    block = (Origin.BLOCK_X, Origin.BLOCK_Y, Origin.BLOCK_Z)
    constants = {
        "clock": ClockKind.CYCLES,
        "overflow": OverflowMode.STOP,
        "language": values.language,
        "options": _options(frame),
        "whole": values.whole,
        "together": 1 << frame.row_bits,
        **({"margin": values.margin} if values.margin else {}),
    }
    return {
        **{each: _constant(PLACES.grid + 4 * at) for at, each in enumerate(grid)},
        **{each: _constant(PLACES.block + 4 * at) for at, each in enumerate(block)},
        Origin.GRID_ID: _constant(PLACES.grid_id),
        **{name: _immediate(value) for name, value in constants.items()},
    }


def _written(
    given: Mapping[str, _Make],
    quads: Sequence[int],
    put: _Put,
    count: Callable[[int, int], Step] | None = None,
    first: Origin | None = None,
) -> list[Step]:
    """Return the code that makes the header's words in free registers, and stores them.

    Each row of the header has four registers.

    Args:
        given: how values are made, by the keys of words.
        quads: rows of four free registers.
        put: makes a store.
        count: makes the addition of a register to the count of launches; without it, none is made.
        first: this word is made before the others of its row, because it takes their registers.
    """
    found: list[Step] = []
    runs = launch_fields.rows(launch_fields.written(given))
    places = list(dict.fromkeys(run[0].offset // ROW_BYTES for run in runs))
    for run in runs:
        quad = quads[places.index(run[0].offset // ROW_BYTES) % len(quads)]
        registers = {word.name: quad + at for at, word in enumerate(run)}
        for word in sorted(run, key=lambda each: each.origin is not first):
            make = given[word.key] if word.value is None else _immediate(word.value)
            found += make(quad, registers[word.name])
        for store in launch_fields.stores(run, Origin.LAUNCHES):
            offset, value = store[0].offset, registers[store[0].name]
            if count is not None and store[0].origin is Origin.LAUNCHES:
                found.append(count(offset, value))
            else:
                found.append(put(offset, value, len(store)))
    return found


def _immediate(value: int) -> _Make:
    return lambda _, into: [forms.immediate(into, value)]


def _constant(offset: int) -> _Make:
    return lambda _, into: [forms.load_constant(into, 0, offset)]


def _options(frame: Frame) -> int:
    blocks = frame.blocks
    some = frame.selection is not None or blocks is not None
    others = blocks is not None and blocks.others
    return abi.Option.DENSE | abi.Option.SELECTED * some | abi.Option.OTHERS * others


def _settled(body: list[Step], scoreboard: int) -> list[Step]:
    return [*reordered(body), NOP.after(1 << scoreboard)]  # the kernel may use these at once
