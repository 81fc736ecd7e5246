"""PTX instructions: the registers that each reads and writes, and whether its latency is short.

An unknown operation is taken for the worst: it writes all that it names, after any time. Names are
the language's identifiers, so no register is overlooked, however an assembly block names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(
    r"(?:@(?P<negated>!)?\s*(?P<guard>[\w$%]+)\s+)?(?P<op>[a-z][\w.:]*)\s*(?P<operands>.*?);?"
)
_NAME = re.compile(r"(?<![\w$%.])(?:%[\w$]+|[A-Za-z_$][\w$]*)")
_OPERAND = re.compile(r"(?:\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)|[^,{}\[\]()])+")
_WITHIN = re.compile(r"\[[^\[\]]*\]")

_QUICK = frozenset(
    (
        "abs", "add", "and", "bfe", "bfi", "cvt", "cvta", "lop3", "mad", "max", "min", "mov",
        "mul", "neg", "not", "or", "prmt", "selp", "setp", "shf", "shl", "shr", "sub", "xor",
    )
)  # fmt: skip
"""Integer arithmetic that every SM since sm_80 gives a result of within about five cycles."""
_SLOW = frozenset(
    (
        "activemask", "atom", "bfind", "brev", "clz", "div", "elect", "fma", "ld", "ldmatrix",
        "ldu", "match", "popc", "rem", "rcp", "redux", "rsqrt", "sad", "shfl", "slct", "sqrt",
        "vote", "ex2", "lg2", "sin", "cos", "tanh",
    )
)  # fmt: skip
"""Operations that write their first operand late: from memory, other lanes, a unit of its own."""
_SILENT = frozenset(
    (
        "applypriority", "bar", "barrier", "bra", "brx", "cp", "discard", "exit", "fence",
        "griddepcontrol", "membar", "nanosleep", "pmevent", "prefetch", "prefetchu", "red",
        "ret", "setmaxnreg", "st", "stmatrix", "trap",
    )
)  # fmt: skip
"""Operations that write no register."""
_MEMORY = frozenset(("atom", "ld", "ldmatrix", "ldu"))
_SILENT_FORMS = (
    "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "mbarrier.init", "mbarrier.inval",
)  # fmt: skip
_FLOAT = re.compile(r"\.(?:f16|f32|f64|bf16|f16x2|bf16x2|tf32|e\dm\d)")
_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|laneid|n?warpid|n?smid|gridid|lanemask_\w+|clock\w*|globaltimer\w*|pm\d+\w*"
    r"|envreg\d+|n?clusterid|cluster_\w+|is_explicit_cluster|\w+_smem_\w+|current_graph_exec)"
)
_ADDRESSED = ("cp.async", "cp.reduce", "wgmma.mma_async", "tcgen05", "mbarrier", "prefetch",
              "ldmatrix")  # fmt: skip
"""Operations whose register operands are addresses, descriptors and masks; vectors are data."""
_BORDERS = ("bra", "brx", "call", "ret", "exit", "trap", "bar.warp", "setmaxnreg", "brkpt")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, without its comments."""

    op: str  # with its types: "add.s32"
    operands: tuple[str, ...]
    guard: str  # the predicate's register, or ""
    negated: bool = False  # whether it runs where the guard does not hold

    @property
    def name(self) -> str:
        """The opcode alone: ``add``."""
        return self.op.partition(".")[0]

    @property
    def writes(self) -> frozenset[str]:
        """The names that it may write."""
        if self.name in _SILENT or self.op.startswith(_SILENT_FORMS):
            return frozenset()
        known = self.name in _QUICK or self.name in _SLOW
        return names(self.operands[0] if known and self.operands else ",".join(self.operands))

    @property
    def reads(self) -> frozenset[str]:
        """The names that it may read: a guarded one keeps the old value where it does not write."""
        known = (self.name in _QUICK or self.name in _SLOW) and not self.guard
        guard = frozenset([self.guard] if self.guard else [])
        return names(",".join(self.operands[1:] if known else self.operands)) | guard

    @property
    def is_quick(self) -> bool:
        """Whether its result is there a few cycles after its operands are."""
        if self.name not in _QUICK or _FLOAT.search(self.op):
            return False
        return not (self.name in ("mul", "mad") and "64" in self.op)

    @property
    def is_border(self) -> bool:
        """Whether control may leave here, or come from elsewhere."""
        return self.op.startswith(_BORDERS)

    @property
    def waits(self) -> bool:
        """Whether it can't be issued before its operands are there, and is not arithmetic.

        Arithmetic may be merged with later arithmetic, and what is guarded may be jumped over.
        """
        return not (self.guard or self.is_border) and (
            self.name in _MEMORY or self.name in _SILENT or self.op.startswith("wgmma.mma_async")
        )

    @property
    def reads_special(self) -> bool:
        """Whether an operand is a special register, which takes longer to read than others."""
        return any(_SPECIAL.fullmatch(name) for name in self.reads)

    @property
    def size(self) -> int:
        """How many machine instructions it takes at most."""
        wide = "64" in self.op and self.name not in ("mov", "cvt", "cvta")
        return 2 if wide or self.name in ("bfe", "bfi") else 1

    def uses_as_data(self, name: str) -> bool:
        """Whether a name that it reads is more to it than an address, a descriptor or a mask."""
        operands = ",".join(self.operands)
        if self.op.startswith(_ADDRESSED):
            return name in names("".join(re.findall(r"\{[^{}]*\}", operands)))
        return name in names(_WITHIN.sub("", operands)) or name == self.guard


def parse(code: str) -> Instruction | None:
    """Return the instruction in a statement's code; None if it is none."""
    found = _FORM.fullmatch(code)
    if found is None:
        return None
    operands = tuple(part.strip() for part in _OPERAND.findall(found["operands"]))
    return Instruction(found["op"], operands, found["guard"] or "", found["negated"] is not None)


def names(text: str) -> frozenset[str]:
    """Return the identifiers in operands."""
    return frozenset(_NAME.findall(text))
