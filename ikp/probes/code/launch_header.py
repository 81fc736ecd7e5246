"""Probe code that writes the launch header, run by one thread of a launch's first warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ikp.core import abi
from ikp.core.abi import ClockKind, Language, OverflowMode
from ikp.probes.code.record_stores import elected
from ikp.probes.code.reserved_registers import PLACES, Frame, Ground, NearGround
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import NOP, Step
from ikp.sass.assembly.forms import RZ
from ikp.sass.assembly.scheduling import reordered

_HERE: Final = abi.field_offsets(abi.LAUNCH_HEADER)
_Put = Callable[..., Step]
"""Stores registers in a field: the field's name, the first register, and how many, if not four."""


class Told(NamedTuple):
    """What a launch header says of its kernel."""

    whole: int  # the id of the range from each warp's entry to its exit
    language: Language = Language.OTHER
    margin: int = 0  # how many records a warp may write behind the last that it keeps


def launch_header(frame: Frame, ground: Ground, warps: int, told: Told) -> list[Step]:
    """Return the code that writes the header at the cell's address.

    The register ``warps`` has the number of a block's warps.
    """
    f, ok = forms, ground.predicate
    which, size, how, once, last = (ground.quads[n % len(ground.quads)] for n in range(5))

    def put(name: str, value: int, words: int = 4) -> Step:
        return f.store(ground.cell, _HERE[name], value, words, frame.descriptor).when(ok)

    # Where some warps are selected, the launch's first warp need not be one of them.
    some = frame.selection is not None
    first = [f.elect(ok), f.below_other(ok, RZ, ground.sizes, where=ok)]
    body = [
        *(first if some else elected(frame, ok)),
        *_begun(put, which, size),
        *[f.copy(how, warps), f.copy(how + 1, ground.sizes)],
        *[f.immediate(how + 2, ClockKind.CYCLES), f.immediate(how + 3, OverflowMode.STOP)],
        put("warps_per_block", how),
        *[*_constants(once, PLACES.grid_id, 1), f.immediate(once + 1, 1)],
        *[f.immediate(once + 2, told.language), f.immediate(once + 3, _options(frame))],
        put("grid_id", once, 1),
        f.count_up(ground.cell, _HERE["launches"], once + 1, frame.descriptor).when(ok),
        put("language", once + 2, 2),
        *_ended(put, last, frame, told),
    ]
    return _settled(body, ground.scoreboard)


def launch_header_near(frame: Frame, ground: NearGround, told: Told) -> list[Step]:
    """Return the code that writes the header where uniform registers hold addresses.

    The warp's slot is the first: the address kept for its slot header is the launch header's.
    """
    f, ok = forms, ground.predicate
    which, size, how, once, last = (ground.quads[n % len(ground.quads)] for n in range(5))

    def put(name: str, value: int, words: int = 4) -> Step:
        return f.store_near(RZ, frame.header, _HERE[name], value, words).when(ok)

    body = [
        *elected(frame, ok),
        f.constant(ground.pair, 0, PLACES.descriptor, pair=True),
        *_begun(put, which, size),
        *[f.from_uniform(how, frame.room), f.immediate(how + 2, abi.RECORD_BYTES)],
        f.immediate(how + 3, abi.DENSE_HEADER_BYTES + abi.RECORD_BYTES * told.margin),
        f.multiply(how + 1, how, how + 2, how + 3),
        *[f.immediate(how, frame.warps or 1), f.immediate(how + 2, ClockKind.CYCLES)],
        *[f.immediate(how + 3, OverflowMode.STOP), put("warps_per_block", how)],
        *[*_constants(once, PLACES.grid_id, 1), put("grid_id", once, 1)],
        *[f.immediate(once, told.language), f.immediate(once + 1, _options(frame))],
        put("language", once, 2),
        *_ended(put, last, frame, told),
        *[f.from_uniform(which, frame.header), f.from_uniform(which + 1, frame.header + 1)],
        f.immediate(which + 2, 1),
        f.count_up(which, _HERE["launches"], which + 2, ground.pair).when(ok),
    ]
    return _settled(body, ground.scoreboard)


def _options(frame: Frame) -> int:
    blocks = frame.blocks
    some = frame.selection is not None or blocks is not None
    others = blocks is not None and blocks.others
    return abi.Option.DENSE | abi.Option.SELECTED * some | abi.Option.OTHERS * others


def _constants(into: int, offset: int, count: int) -> list[Step]:
    return [forms.load_constant(into + n, 0, offset + 4 * n) for n in range(count)]


def _begun(put: _Put, which: int, size: int) -> list[Step]:
    """Write the header's beginning, up to the sizes of the grid and of a block."""
    return [
        *[forms.immediate(which, abi.MAGIC), forms.immediate(which + 1, abi.ABI_VERSION)],
        *_constants(which + 2, PLACES.grid, 2),
        put("magic", which),
        *[*_constants(size, PLACES.grid + 8, 1), *_constants(size + 1, PLACES.block, 3)],
        put("grid_z", size),
    ]


def _ended(put: _Put, last: int, frame: Frame, told: Told) -> list[Step]:
    """Write the header's end: the range of the whole kernel, and how many records are in a row."""
    margin = [forms.immediate(last + 2, told.margin), put("margin", last + 2, 1)]
    return [
        *[forms.immediate(last, told.whole), forms.immediate(last + 1, 1 << frame.row_bits)],
        put("whole", last, 2),
        *(margin if told.margin else []),
    ]


def _settled(body: list[Step], scoreboard: int) -> list[Step]:
    return [*reordered(body), NOP.after(1 << scoreboard)]  # the kernel may use these at once
