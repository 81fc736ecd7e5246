"""Instructions that say what a stretch of code does: products, copies, loads, stores and waits."""

from __future__ import annotations

import re
from enum import Enum
from functools import cache


class Anchor(Enum):
    """What an instruction is to somebody who wants to know where time goes."""

    PRODUCT = "product"  # of matrices
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
    Anchor.PRODUCT, Anchor.COPY, Anchor.TMA_LOAD, Anchor.TMA_STORE, Anchor.LOAD, Anchor.STORE,
    Anchor.TENSOR_LOAD, Anchor.TENSOR_STORE, Anchor.TENSOR_COPY,
}  # fmt: skip
"""What is issued and comes back later."""

_OPCODES = {
    Anchor.PRODUCT_WAIT: r"WARPGROUP\.DEPBAR",
    Anchor.PRODUCT: r"(?:[BDFHIOQ]|F8|QF8)?G?MMA|UTC\w*MMA(?:_?\w*)?",
    Anchor.COPY: r"LDGSTS",
    Anchor.COPY_WAIT: r"DEPBAR",
    Anchor.TMA_LOAD: r"UTMALDG|UBLKCP\.S\.G",
    Anchor.TMA_STORE: r"UTMASTG|UTMAREDG|UBLKCP\.G\.S|UBLKRED",
    Anchor.BARRIER: r"BAR\.(?:SYNC|RED)|UCGABAR_WAIT",
    Anchor.MBARRIER_WAIT: r"SYNCS\.PHASECHK",
    Anchor.TENSOR_LOAD: r"LDTM",
    Anchor.TENSOR_STORE: r"STTM",
    Anchor.TENSOR_COPY: r"UTCCP",
    Anchor.LOAD: r"LDG|LDGMC|LD",
    Anchor.STORE: r"STG|ST",
}
_ANY = re.compile("|".join(f"(?P<{a.name}>(?:{regex}))(?:\\.|$)" for a, regex in _OPCODES.items()))


@cache
def anchor(opcode: str) -> Anchor | None:
    """Return what an opcode is; None for most."""
    found = _ANY.match(opcode)
    return Anchor[found.lastgroup] if found and found.lastgroup else None
