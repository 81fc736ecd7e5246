"""Landmarks: instructions that say what a region of code does, such as MMAs, copies and waits."""

from __future__ import annotations

import re
from enum import Enum
from functools import cache


class Landmark(Enum):
    """The kind of a landmark instruction."""

    PRODUCT = "product"  # of matrices: an MMA
    PRODUCT_WAIT = "product wait"
    COPY = "copy"  # cp.async: from global to shared memory
    COPY_WAIT = "copy wait"
    TMA_LOAD = "TMA load"
    TMA_STORE = "TMA store"
    BARRIER = "barrier"
    MBARRIER_WAIT = "mbarrier wait"
    TENSOR_LOAD = "tcgen05.ld"  # from tensor memory to registers
    TENSOR_STORE = "tcgen05.st"
    TENSOR_COPY = "tcgen05.cp"  # from shared to tensor memory
    LOAD = "load"
    STORE = "store"


ISSUED = {
    Landmark.PRODUCT, Landmark.COPY, Landmark.TMA_LOAD, Landmark.TMA_STORE, Landmark.LOAD,
    Landmark.STORE, Landmark.TENSOR_LOAD, Landmark.TENSOR_STORE, Landmark.TENSOR_COPY,
}  # fmt: skip
"""Asynchronous operations: issued, and complete later."""

_OPCODES = {
    Landmark.PRODUCT_WAIT: r"WARPGROUP\.DEPBAR",
    Landmark.PRODUCT: r"(?:[BDFHIOQ]|F8|QF8)?G?MMA|UTC\w*MMA(?:_?\w*)?",
    Landmark.COPY: r"LDGSTS",
    Landmark.COPY_WAIT: r"DEPBAR",
    Landmark.TMA_LOAD: r"UTMALDG|UBLKCP\.S\.G",
    Landmark.TMA_STORE: r"UTMASTG|UTMAREDG|UBLKCP\.G\.S|UBLKRED",
    Landmark.BARRIER: r"BAR\.(?:SYNC|RED)|UCGABAR_WAIT",
    Landmark.MBARRIER_WAIT: r"SYNCS\.PHASECHK",
    Landmark.TENSOR_LOAD: r"LDTM",
    Landmark.TENSOR_STORE: r"STTM",
    Landmark.TENSOR_COPY: r"UTCCP",
    Landmark.LOAD: r"LDG|LDGMC|LD",
    Landmark.STORE: r"STG|ST",
}
_ANY = re.compile("|".join(f"(?P<{a.name}>(?:{regex}))(?:\\.|$)" for a, regex in _OPCODES.items()))


@cache
def landmark(opcode: str) -> Landmark | None:
    """Return the kind of landmark that an opcode is; None for most opcodes."""
    found = _ANY.match(opcode)
    return Landmark[found.lastgroup] if found and found.lastgroup else None
