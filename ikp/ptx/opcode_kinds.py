"""Kinds of PTX opcodes: the landmark that each is, and the title of a group of them."""

from __future__ import annotations

import re
from functools import cache

from ikp.sass.disassembly.opcodes import Landmark

_HOW = r"(?:\.(?:relaxed|acquire|release|volatile|weak|gpu|sys|cta|cluster))*"
"""Qualifiers of memory order and scope. An address without a state space is generic: it may be
global."""
_OPERATIONS = {
    Landmark.PRODUCT: r"wgmma\.mma_async|mma\.|wmma\.mma|tcgen05\.mma",
    Landmark.PRODUCT_WAIT: r"wgmma\.wait_group",
    Landmark.COPY: r"cp\.async\.c[ag]\.shared",
    Landmark.COPY_WAIT: r"cp\.async\.(?:bulk\.)?wait_(?:group|all)",
    Landmark.TMA_LOAD: r"cp\.async\.bulk\.(?:tensor\.[\w:.]*?)?shared::\w+\.global",
    Landmark.TMA_STORE: r"cp\.(?:reduce\.)?async\.bulk\.(?:tensor\.[\w:.]*?)?global\.shared",
    Landmark.BARRIER: r"bar(?:rier)?(?:\.cta)?\.(?:sync|red)|barrier\.cluster\.wait",
    Landmark.MBARRIER_WAIT: r"mbarrier\.(?:try|test)_wait",
    Landmark.TENSOR_LOAD: r"tcgen05\.ld",
    Landmark.TENSOR_STORE: r"tcgen05\.st",
    Landmark.TENSOR_COPY: r"tcgen05\.cp",
    Landmark.LOAD: rf"ld{_HOW}\.(?:global|[vbusf]\d)",
    Landmark.STORE: rf"st{_HOW}\.(?:global|[vbusf]\d)",
}
_ANY = re.compile("|".join(f"(?P<{a.name}>{regex})" for a, regex in _OPERATIONS.items()))
_COMMITS = re.compile(r"wgmma\.commit_group")


@cache
def kind_of(opcode: str) -> Landmark | None:
    """Return the landmark that an operation with its types is; None for most."""
    found = _ANY.match(opcode)
    return Landmark[found.lastgroup] if found and found.lastgroup else None


def commits(opcode: str) -> bool:
    """Whether an operation commits a group of products, which are waited for together."""
    return _COMMITS.match(opcode) is not None


@cache
def title(opcode: str) -> str:
    """Return the title of a group of such operations, as for machine code."""
    kind = kind_of(opcode)
    if kind is Landmark.PRODUCT:
        family = opcode.partition(".")[0]
        return {"tcgen05": "tcgen05.mma", "wgmma": "wgmma"}.get(family, "mma")
    if kind is Landmark.COPY_WAIT:
        return "TMA store wait" if ".bulk." in opcode else "cp.async wait"
    words = {Landmark.COPY: "cp.async", Landmark.PRODUCT_WAIT: "wgmma wait"}
    return words.get(kind, kind.value) if kind else ""
