"""What a file numbers its tracks, packets and arrows by.

Perfetto can join files: one behind the other (``cat``), or in an archive. Track ids, sequence ids
and flow ids then share one space, and whatever has equal ids becomes one. So each file's begin at
numbers drawn from what the trace is: where, when and what was recorded, and how it was edited. The
same trace gets the same ids each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from ikp.core.trace import Slots, Trace
from ikp.exporters.perfetto.varints import VARINT_BITS

TRACK_BYTES: Final = 6
SEQUENCE_BYTES: Final = 4
"""What each id takes in a packet, as a varint. Ids of system traces count from 1: ours are out of
their way, and of one size, which makes packets faster to encode."""
MAX_TRACKS: Final = 1 << 28
"""More than a trace can have; smaller ids than this are those of files of layout 1."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Where the ids of one file begin."""

    sequence: int
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
            sequence=_within(SEQUENCE_BYTES, words[0], 0),
            first_track=_within(TRACK_BYTES, words[1], MAX_TRACKS),
            first_flow=words[2] >> 2,  # flow ids take 8 bytes each, whatever they are
        )


def _within(size: int, random: int, room: int) -> int:
    """Return a number from which on ``room`` ones take ``size`` bytes each as varints."""
    least, most = 1 << VARINT_BITS * (size - 1), 1 << VARINT_BITS * size
    return least + random % (most - least - room)
