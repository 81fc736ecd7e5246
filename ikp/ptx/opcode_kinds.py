"""What an instruction of PTX is to somebody who wants to know where time goes."""

from __future__ import annotations

import re
from functools import cache

from ikp.machine.disassembly.anchors import Anchor

_HOW = r"(?:\.(?:relaxed|acquire|release|volatile|weak|gpu|sys|cta|cluster))*"
"""In which order with others'. Without a space, memory may be global: generic addresses."""
_OPERATIONS = {
    Anchor.PRODUCT: r"wgmma\.mma_async|mma\.|wmma\.mma|tcgen05\.mma",
    Anchor.PRODUCT_WAIT: r"wgmma\.wait_group",
    Anchor.COPY: r"cp\.async\.c[ag]\.shared",
    Anchor.COPY_WAIT: r"cp\.async\.(?:bulk\.)?wait_(?:group|all)",
    Anchor.TMA_LOAD: r"cp\.async\.bulk\.(?:tensor\.[\w:.]*?)?shared::\w+\.global",
    Anchor.TMA_STORE: r"cp\.(?:reduce\.)?async\.bulk\.(?:tensor\.[\w:.]*?)?global\.shared",
    Anchor.BARRIER: r"bar(?:rier)?(?:\.cta)?\.(?:sync|red)|barrier\.cluster\.wait",
    Anchor.MBARRIER_WAIT: r"mbarrier\.(?:try|test)_wait",
    Anchor.TENSOR_LOAD: r"tcgen05\.ld",
    Anchor.TENSOR_STORE: r"tcgen05\.st",
    Anchor.TENSOR_COPY: r"tcgen05\.cp",
    Anchor.LOAD: rf"ld{_HOW}\.(?:global|[vbusf]\d)",
    Anchor.STORE: rf"st{_HOW}\.(?:global|[vbusf]\d)",
}
_ANY = re.compile("|".join(f"(?P<{a.name}>{regex})" for a, regex in _OPERATIONS.items()))
_COMMITS = re.compile(r"wgmma\.commit_group")


@cache
def kind_of(opcode: str) -> Anchor | None:
    """Return what an operation with its types is; None for most."""
    found = _ANY.match(opcode)
    return Anchor[found.lastgroup] if found and found.lastgroup else None


def commits(opcode: str) -> bool:
    """Whether it closes a group of products that are waited for together."""
    return _COMMITS.match(opcode) is not None


@cache
def title(opcode: str) -> str:
    """Return what a group of such operations is called, as those of machine code are."""
    kind = kind_of(opcode)
    if kind is Anchor.PRODUCT:
        family = opcode.partition(".")[0]
        return {"tcgen05": "tcgen05.mma", "wgmma": "wgmma"}.get(family, "mma")
    if kind is Anchor.COPY_WAIT:
        return "TMA store wait" if ".bulk." in opcode else "cp.async wait"
    words = {Anchor.COPY: "cp.async", Anchor.PRODUCT_WAIT: "wgmma wait"}
    return words.get(kind, kind.value) if kind else ""
