"""The record ABI, version 1: layouts of launch header, slot header and record, and their constants.

Backends generate device code from these constants, the decoder reads with these dtypes. No other
file holds the numbers, but ``launch_fields`` has those of the launch header. A *segment* is the
memory of one kernel launch::

    +-----------------+--------+--------+-- ... --+------------+
    | launch header   | slot 0 | slot 1 |         | slot n - 1 |      n = blocks x warps per block
    +-----------------+--------+--------+-- ... --+------------+
      128 B           | slot_bytes each, derived by the kernel |

    slot   = | slot header 64 B | record 0 | record 1 | ...     one warp of one block
    record = | tag u32 | start u32 | end u32 | payload u32 |    little endian, 16 B
             | start u64 | end u64 | tag u32 | payload u32 | 8 B reserved |
                                                  of a 64-bit clock: 32 B

    tag    = | kind 31:29 | payload type 28:27 | region id 26:0 |

Behind the slots there may be headers of warps that have none (``Option.OTHERS``).
The slot index is ``linear block id * warps per block + warp in block``. The kernel derives
``slot_bytes`` from the segment's size and its own grid, so the host need not know the grid and no
grid can make a warp write outside its slot. A tag is never 0: 0 means "nothing here".
Little-endian throughout: every supported GPU and host is.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core import launch_fields

Rows = NDArray[np.void]
"""Rows of one of the structures below: launch headers, slot headers, or records."""
_StructDType = np.dtype[np.void]

ABI_VERSION: Final = launch_fields.ABI_VERSION
MAGIC: Final = launch_fields.MAGIC

LAUNCH_HEADER: Final = launch_fields.layout()
SLOT_HEADER: Final = np.dtype(
    [
        ("init_ns", "<u8"),  # global timer and clock, read back to back by init
        ("init_clock", "<u8"),
        ("finish_ns", "<u8"),  # the same pair, read by finish; 0 if it never ran
        ("finish_clock", "<u8"),
        ("sm", "<u4"),
        ("grid_id", "<u4"),
        ("state", "<u4"),  # SlotState
        ("role", "<u4"),  # region id of the role's name; 0 where the warp has none
        ("attempted", "<u4"),  # records attempted, dropped ones included; written by finish, and
        # in a stream with each record
        ("open", "<u4"),  # of a stream: tag of the range opened last, 0 once a record is stored,
        ("open_start", "<u8"),  # and its start: as many bits as the clock's records have
    ]
)
DENSE_HEADER: Final = np.dtype(
    [
        ("init_ns", "<u4"),  # the low halves of what init read
        ("init_clock", "<u4"),
        ("attempted", "<u4"),
        ("sm", "<u2"),
        ("grid_id", "<u2"),  # its low half
        ("finish_ns", "<u8"),
        ("finish_clock", "<u8"),
    ]
)
"""A slot header of ``Option.DENSE``: one sector of memory."""
RECORD: Final = np.dtype([("tag", "<u4"), ("start", "<u4"), ("end", "<u4"), ("payload", "<u4")])
TOTAL: Final = np.dtype(
    [("tag", "<u4"), ("ticks_low", "<u4"), ("ticks_high", "<u4"), ("count", "<u4")]
)
"""The fields of a record that is a total; its words 1 to 3 are no times."""
WIDE_RECORD: Final = np.dtype(
    [
        ("start", "<u8"),  # in this order, the result of a clock read is stored as it is
        ("end", "<u8"),
        ("tag", "<u4"),
        ("payload", "<u4"),
        ("reserved", "<u4", 2),  # never written: 32 bytes are one sector of memory, 24 none
    ]
)
"""A record of a 64-bit clock, with the fields of ``RECORD``."""

LAUNCH_HEADER_BYTES: Final = LAUNCH_HEADER.itemsize
SLOT_HEADER_BYTES: Final = SLOT_HEADER.itemsize
DENSE_HEADER_BYTES: Final = DENSE_HEADER.itemsize
RECORD_BYTES: Final = RECORD.itemsize
WORD_BITS: Final = 32
ALIGNMENT: Final = 16
"""Segments, slots and records start at multiples of this, so that each is one vector store."""
MAX_SEGMENT_BYTES: Final = (1 << 31) - ALIGNMENT
"""A segment's size is a signed 32-bit kernel argument, and it may not cross a multiple of 4 GiB."""


class Kind(IntEnum):
    """The kind of a record: range, instant or total; tag bits 31:29. 0 is never written."""

    RANGE = 1
    INSTANT = 2
    PLACED_RANGE = 3  # a range at an index that the kernel gave: not in the order of time
    PLACED_INSTANT = 4
    RANGE_TOTAL = 5  # all ranges of a region: how many, and the sum of their ticks
    INSTANT_TOTAL = 6  # all instants of a region: how many


class PayloadType(IntEnum):
    """How to read the payload word; tag bits 28:27."""

    NONE = 0
    U32 = 1
    I32 = 2
    F32 = 3


class ClockKind(IntEnum):
    """The clock that ``start`` and ``end`` are read from."""

    CYCLES = 0  # SM cycles (%clock): finest, each SM has its own origin
    GLOBALTIMER = 1  # nanoseconds (%globaltimer), one axis, coarse steps
    HOST = 2  # nanoseconds of the host's monotonic clock (Triton's interpreter)
    CYCLES64 = 3  # the same three, all 64 bits of them
    GLOBALTIMER64 = 4
    HOST64 = 5

    @property
    def bits(self) -> int:
        """How many bits of the clock a record holds: 32 or 64."""
        return 64 if self >= ClockKind.CYCLES64 else 32

    @property
    def unit(self) -> ClockKind:
        """The clock without its width: ``CYCLES64`` is ``CYCLES``."""
        return ClockKind(self % ClockKind.CYCLES64)

    @property
    def record(self) -> _StructDType:
        """The layout of a record of this clock: ``RECORD`` or ``WIDE_RECORD``."""
        return WIDE_RECORD if self.bits > WORD_BITS else RECORD


class Language(IntEnum):
    """The language that the kernel was written in."""

    OTHER = 0  # a plugin's: the session knows its name
    TRITON = 1
    GLUON = 2
    CUTE = 3


class OverflowMode(IntEnum):
    """Which records a full slot keeps."""

    STOP = 0  # keep the first records, count the rest
    WRAP = 1  # keep the latest records: a ring
    STREAM = 2  # a ring, whose count the warp publishes: the host reads it while the kernel runs

    @property
    def wraps(self) -> bool:
        """Whether the latest records overwrite the oldest."""
        return self is not OverflowMode.STOP


class Option(IntFlag):
    """Features that the kernel was compiled for: bits of the launch header's ``options``."""

    SELECTED = 1  # only the warps and blocks chosen in the launch header have slots; 2 is reserved
    TOTALS = 4  # each record is the total of one region, written by finish
    LANES64 = 8  # a warp has 64 lanes, not 32
    DENSE = 16  # short slot headers lie side by side, and records of several warps in rows
    OTHERS = 32  # of SELECTED | DENSE: behind the slots lies a header of each warp of the launch,
    # written by the warps that have no slot


class SlotState(IntEnum):
    """Whether a slot's warp ran ``init``, and ``finish``."""

    UNUSED = 0
    RUNNING = 1  # init ran, finish did not (yet)
    FINISHED = 3


PLACED: Final = {Kind.RANGE: Kind.PLACED_RANGE, Kind.INSTANT: Kind.PLACED_INSTANT}
"""The kind of a record whose index the kernel gave."""

TOTALS: Final = {Kind.RANGE: Kind.RANGE_TOTAL, Kind.INSTANT: Kind.INSTANT_TOTAL}
"""The kind of the record that a warp has of all its ranges or instants of one region."""

KIND_SHIFT: Final = 29
PAYLOAD_SHIFT: Final = 27
_REGION_BITS: Final = 27
REGION_MASK: Final = (1 << _REGION_BITS) - 1
HASHED_REGION: Final = 1 << (_REGION_BITS - 1)
"""This bit of a region id says: a hash of the region's name, not a number given by the user."""
MAX_USER_REGION: Final = HASHED_REGION - 1


def tag(kind: Kind, payload_type: PayloadType, region: int) -> int:
    """Return the tag word of a record."""
    return kind << KIND_SHIFT | payload_type << PAYLOAD_SHIFT | (region & REGION_MASK)


def min_slot_bytes(
    overflow: OverflowMode,
    clock: ClockKind = ClockKind.CYCLES,
    header_bytes: int = SLOT_HEADER_BYTES,
) -> int:
    """Return the size of the smallest slot that holds a record."""
    return header_bytes + clock.record.itemsize * _min_records(overflow)


def _min_records(overflow: OverflowMode) -> int:
    """Return the smallest capacity of a slot. A ring of one would have the mask 0."""
    return 2 if overflow.wraps else 1


def field_offsets(dtype: _StructDType) -> dict[str, int]:
    """Return the byte offset of each field; of an ``x, y, z`` field also that of each part."""
    offsets = {}
    for name in dtype.names or ():
        base, offset = dtype.fields[name][:2]  # type: ignore[index]
        offsets[name] = offset
        if base.shape == (3,):
            offsets |= {f"{name}_{axis}": offset + 4 * i for i, axis in enumerate("xyz")}
    return offsets


def slot_capacity(
    slot_bytes: int,
    overflow: OverflowMode,
    clock: ClockKind = ClockKind.CYCLES,
    header_bytes: int = SLOT_HEADER_BYTES,
) -> int:
    """Return how many records a slot of ``slot_bytes`` holds.

    A ring's capacity is a power of two, so that the kernel wraps with one mask.
    """
    records = max(0, slot_bytes - header_bytes) // clock.record.itemsize
    if overflow.wraps and records:
        return 1 << (records.bit_length() - 1)
    return records


def segment_bytes(
    slots: int,
    records: int,
    overflow: OverflowMode = OverflowMode.STOP,
    clock: ClockKind = ClockKind.CYCLES,
    header_bytes: int = SLOT_HEADER_BYTES,
) -> int:
    """Return the size of a segment in which each of ``slots`` warps can keep ``records``."""
    if overflow.wraps:
        records = 1 << max(0, records - 1).bit_length()
    return LAUNCH_HEADER_BYTES + slots * (header_bytes + records * clock.record.itemsize)


MIN_SEGMENT_BYTES: Final = LAUNCH_HEADER_BYTES + min_slot_bytes(OverflowMode.WRAP)
"""The size of a segment of one warp, whose slot keeps two records."""
