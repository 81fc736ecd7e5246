"""What a file numbers its tracks, its clock and its arrows by.

Perfetto can join files: one behind the other (``cat``), or in an archive. Ids of tracks, clocks and
flows then share one space, and whatever has equal ids becomes one. So each file's begin at
numbers drawn from what the trace is: where, when and what was recorded, and how it was edited. The
same trace gets the same ids each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from ikp.core.trace import Slots, Trace
from ikp.exporters.perfetto.schema import FIRST_GLOBAL_CLOCK
from ikp.exporters.protobuf.varints import VARINT_BITS

TRACK_BYTES: Final = 6
"""What a track's id takes in a packet, as a varint. All take as much, which makes packets faster to
encode. With 20,000 tracks each, two files have one in common once in 10^8."""
LEAST: Final = 1 << VARINT_BITS * (TRACK_BYTES - 1)
"""The least number that takes so many bytes. The greatest one is just below 128 times that."""
MAX_TRACKS: Final = 1 << 28
"""More than a trace can have; smaller ids than this are those of files of layout 1."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Where the ids of one file begin."""

    clock: int
    first_track: int
    first_flow: int

    @classmethod
    def of(cls, trace: Trace) -> Ids:
        """Draw ids from what tells a trace from any other one."""
        digest = blake2b(digest_size=24)
        facts = (trace.launches, trace.regions, trace.roles, trace.provenance, list(trace.args))
        digest.update(repr((facts, len(trace.events), len(trace.totals))).encode(errors="replace"))
        for name in Slots.__slots__:
            digest.update(np.ascontiguousarray(getattr(trace.slots, name)).tobytes())
        words = np.frombuffer(digest.digest(), "<u8").tolist()
        return cls(
            clock=FIRST_GLOBAL_CLOCK + words[0] % (1 << 31),
            first_track=LEAST + words[1] % (LEAST * 127 - MAX_TRACKS),
            first_flow=words[2] >> 2,  # flow ids take 8 bytes each, whatever they are
        )
