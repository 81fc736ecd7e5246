"""Probe code that writes headers: the launch's, and before an EXIT each warp's, with both clocks.

One thread of the launch's first warp writes the launch header. Where a warp's threads leave apart,
the header that the last of them store remains.

Stores, those of records too, take uniform or per-thread addresses. A uniform address is a pair of
uniform registers, to which a register of each thread's is added, or RZ. A per-thread address is two
registers of each thread's own.
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
from ikp.sass.assembly.forms import RZ, URZ

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


def read_clocks(quad: int) -> list[Step]:
    """Return the code that reads both clocks into four registers."""
    return [forms.wide(quad, forms.GLOBAL_TIMER), forms.wide(quad + 2, forms.CLOCK)]


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


_HEADER: Final = abi.field_offsets(abi.DENSE_HEADER)


def leave(frame: Frame, quads: Sequence[int], address: int, predicate: int) -> list[Step]:
    """Return the code by which one thread stores the header.

    Args:
        frame: the kernel's reserved registers.
        quads: rows of four free registers, one at least; with four, no store waits for another.
        address: two free registers, the first even; not needed where uniform ones name addresses.
        predicate: a free one.
    """
    now, before = quads[0], quads[-1]
    kept = _kept(frame)
    steps = [
        *elected(frame, predicate),
        *_addressed(frame, address),
        put_header(frame, _own(frame, address), QUAD, now).when(predicate),
        *_copied(frame, before),
        put_header(frame, _own(frame, address), _first(frame), before, len(kept)).when(predicate),
    ]
    return [*read_clocks(now), *reordered(steps)]


def leave_together(
    frame: Frame, quad: int, address: int, predicates: tuple[int, int]
) -> list[Step]:
    """Return the code before the only EXIT, where all threads leave: two store the header.

    Each has half of it, so it goes to memory at once.

    Args:
        frame: the kernel's reserved registers, those of the clocks at the entry too.
        quad: four free registers in a row.
        address: two free registers, the first even; one, where uniform ones name addresses.
        predicates: free ones.
    """
    f, (stores, second) = forms, predicates
    steps = [
        f.special(address, f.LANE),
        f.below_constant(stores, address, abi.DENSE_HEADER_BYTES // QUAD),
        f.below(stores, RZ, frame.room, where=stores),
        f.differs(second, address, 0),
        *[each.when(second, holds=False) for each in _copied(frame, quad)],
        f.scaled(address, address, URZ if frame.near else frame.header, QUAD.bit_length() - 1),
        *([] if frame.near else [f.from_uniform(address + 1, frame.high)]),
        put_header(frame, address, 0, quad).when(stores),
    ]
    return [*read_clocks(quad), *reordered(steps)]


def leave_by_words(frame: Frame, words: Sequence[int], address: int, predicate: int) -> list[Step]:
    """Return the code that stores the header word by word, where no four free registers adjoin.

    That is so where the last stores may still read nearly all registers: no scoreboard says when
    they have. This takes six registers still, but only two in a row.

    Args:
        frame: the kernel's reserved registers.
        words: four free registers.
        address: two others, the first even: the clocks are read into these.
        predicate: a free one.
    """
    f, low, high, kept = forms, address, address + 1, _kept(frame)

    def put(first: int, some: Sequence[int]) -> list[Step]:
        own = _own(frame, address)
        stores = [put_header(frame, own, first + 4 * n, each, 1) for n, each in enumerate(some)]
        return [each.when(predicate) for each in stores]

    times = [
        *[f.wide(low, f.GLOBAL_TIMER), f.copy(words[0], low), f.copy(words[1], high)],
        *[f.wide(low, f.CLOCK), f.copy(words[2], low), f.copy(words[3], high)],
    ]
    steps = [
        *elected(frame, predicate),
        *_addressed(frame, address),
        *put(_HEADER["finish_ns"], words),
        *[f.from_uniform(into, each) for into, each in zip(words, kept, strict=False)],
        *put(_first(frame), words[: len(kept)]),
    ]
    return [*times, *reordered(steps)]


def _own(frame: Frame, address: int) -> int:
    """Return the thread's own register of a header's address: RZ where uniform ones hold it all."""
    return RZ if frame.near else address


def _addressed(frame: Frame, address: int) -> list[Step]:
    """Copy the header's address to two registers, where no uniform ones name it."""
    if frame.near:
        return []
    return [forms.from_uniform(address, frame.header), forms.from_uniform(address + 1, frame.high)]


def _kept(frame: Frame) -> tuple[int, ...]:
    """Return the uniform registers to store; the entry's clocks only if not stored yet."""
    return (*frame.entered[:2], frame.count, *frame.entered[2:])


def _first(frame: Frame) -> int:
    """Return the offset in the header of the first word in ``_kept``."""
    return 0 if frame.entered else _HEADER["attempted"]


def _copied(frame: Frame, into: int) -> list[Step]:
    """Copy the registers of ``_kept`` to a row of each thread's own."""
    if frame.near:
        pairs = (frame.entered[0], frame.count)
        return [forms.from_uniform_pair(into + 2 * n, each) for n, each in enumerate(pairs)]
    return [forms.from_uniform(into + n, each) for n, each in enumerate(_kept(frame))]
