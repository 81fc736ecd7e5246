"""PTX parsed: statements, and instructions with the registers that each reads and writes.

PTX is free-form, as C is: several statements may share a line, one may take several, and braces
open scopes. Compilers write a line each, but hand-written inline assembly need not. So every pass
over PTX works on these statements (PTX ISA, chapter "Syntax"; "statement" is its word).

A statement's text has its indentation and the rest of its line: moved, it takes its line along.
Joined again, statements are the text byte for byte.

An unknown operation is taken for the worst: it writes all that it names, after any time. Names are
the language's identifiers, so no register is overlooked, however an assembly block names it.

The ``.loc`` directives inside inline assembly have wrong lines, and are removed
(``without_counted_lines``). LLVM counts: it says that the n-th line of an assembly block comes from
the n-th source line after the block's own. Code behind the block without a line of its own then
seems to come from there, too. Debuggers, profilers and ``ikp inspect`` would show the wrong lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

BEGIN_ASSEMBLY = "// begin inline asm"
END_ASSEMBLY = "// end inline asm"
"""The comments that LLVM writes around inline assembly, the user's and Triton's own alike."""


class StatementKind(Enum):
    """The kind of a statement."""

    SPACE = auto()  # a blank line
    COMMENT = auto()  # a comment on a line of its own, or before a statement
    LOCATION = auto()  # .loc: the source line of the code after it
    LABEL = auto()
    OPEN = auto()  # the brace that opens a scope or a function's body
    CLOSE = auto()
    HEAD = auto()  # .entry or .func with its parameters, up to the brace or with its semicolon
    DIRECTIVE = auto()
    INSTRUCTION = auto()
    OTHER = auto()  # no PTX: a text that ends in the middle


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, with the exact ``text`` that it has in its module."""

    kind: StatementKind
    text: str

    @property
    def code(self) -> str:
        """The statement without comments, each run of blanks as one space."""
        return " ".join(_COMMENTS.sub(_only_strings, self.text).split())


_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_BLANKS = r"[ \t\r\f\v]*"
# Marks are comments that passes read: they never count as the rest of another line.
_REST = rf"{_BLANKS}(?://(?! (?:ikp\.|begin inline asm|end inline asm))[^\n]*)?(?:\n|\Z)|{_BLANKS}"
_LOC = (
    r"\.loc\s+\d+\s+\d+\s+\d+"
    r"(?:\s*,\s*(?:function_name\s+[\w$.]+(?:\s*\+\s*\w+)?|inlined_at\s+\d+\s+\d+\s+\d+))*"
)
_LINE = (
    rf"\.file\s+\d+\s+{_STRING}(?:\s*,\s*\d+)*|\.version\s+\d+\.\d+|\.address_size\s+\d+"
    r"|\.target\s+\w+(?:\s*,\s*\w+)*"
)
_TABLE = r"\s*\.(?:branchtargets|calltargets|callprototype)\b"  # the label is its name
_FORMS = re.compile(
    rf"(?P<SPACE>{_BLANKS}\n|{_BLANKS}\Z)"
    rf"|{_BLANKS}(?P<COMMENT>//[^\n]*(?:\n|\Z)|/\*.*?\*/(?:{_BLANKS}\n)?)"
    rf"|{_BLANKS}(?:(?P<LOCATION>{_LOC})|(?P<DIRECTIVE>{_LINE})"
    rf"|(?P<LABEL>[A-Za-z_$%][\w$]*\s*:(?!:)(?!{_TABLE}))|(?P<OPEN>\{{)|(?P<CLOSE>\}}))(?:{_REST})",
    re.DOTALL,
)
_HEAD = re.compile(rf"{_BLANKS}(?:\.(?:visible|extern|weak|common)\s+)*\.(?:entry|func)\b")
_DIRECTIVE = re.compile(rf"{_BLANKS}(?:\.|[A-Za-z_$%][\w$]*\s*:{_TABLE})")
_SECTION = re.compile(rf"{_BLANKS}\.section\b")
_PIECE = re.compile(rf"{_STRING}|{_COMMENT}|(?P<mark>[;{{}}])|/|\"|[^;{{}}\"/]+", re.DOTALL)
_AFTER = re.compile(_REST)
_COMMENTS = re.compile(rf"{_STRING}|{_COMMENT}", re.DOTALL)


def statements(text: str) -> list[Statement]:
    """Return the statements of PTX; of any other text, parts that join to it again."""
    return list(_each(text))


def joined(parts: Iterable[Statement]) -> str:
    """Return the text of statements."""
    return "".join(part.text for part in parts)


def mark_of(part: Statement) -> str:
    """Return a comment without the blanks around it; "" of any other statement."""
    return part.text.strip() if part.kind is StatementKind.COMMENT else ""


def in_assembly(parts: Iterable[Statement]) -> list[bool]:
    """Return for each statement whether it is in inline assembly, its two comments included."""
    found, inside = [], False
    for part in parts:
        inside = inside or mark_of(part) == BEGIN_ASSEMBLY
        found.append(inside)
        inside = inside and mark_of(part) != END_ASSEMBLY
    return found


def _each(text: str) -> Iterator[Statement]:
    at = 0
    while at < len(text):
        found = _FORMS.match(text, at)
        if found is not None and found.end() > at:
            kind, stop = StatementKind[str(found.lastgroup)], found.end()
        else:
            kind, stop = _long(text, at)
        yield Statement(kind, text[at:stop])
        at = stop


def _long(text: str, at: int) -> tuple[StatementKind, int]:
    """Return the kind of the statement at ``at``, and its end: behind a semicolon or at a brace."""
    if _HEAD.match(text, at):
        return _ended(text, at, StatementKind.HEAD, before="{")
    if _SECTION.match(text, at):
        return _ended(text, at, StatementKind.DIRECTIVE, block=True)
    directive = _DIRECTIVE.match(text, at)
    return _ended(text, at, StatementKind.DIRECTIVE if directive else StatementKind.INSTRUCTION)


def _ended(
    text: str, at: int, kind: StatementKind, before: str = "", block: bool = False
) -> tuple[StatementKind, int]:
    """Find a statement's end: its semicolon, the brace ``before`` which it ends, or its block's."""
    depth = 0
    for piece in _PIECE.finditer(text, at):
        mark = piece["mark"]
        if mark == before:
            return kind, piece.start()
        depth += {"{": 1, "}": -1}.get(mark or "", 0)
        if (mark == ";" and depth <= 0) or (block and mark == "}" and depth == 0):
            rest = _AFTER.match(text, piece.end())
            return kind, rest.end() if rest else piece.end()
    return StatementKind.OTHER, len(text)


def _only_strings(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else " "


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
class PtxInstruction:
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


def parse(code: str) -> PtxInstruction | None:
    """Return the instruction in a statement's code; None if it is none."""
    found = _FORM.fullmatch(code)
    if found is None:
        return None
    operands = tuple(part.strip() for part in _OPERAND.findall(found["operands"]))
    return PtxInstruction(found["op"], operands, found["guard"] or "", found["negated"] is not None)


def names(text: str) -> frozenset[str]:
    """Return the identifiers in operands."""
    return frozenset(_NAME.findall(text))


def without_counted_lines(parts: list[Statement]) -> list[Statement]:
    """Return the statements without the locations inside assembly blocks: the block's own holds."""
    counted = in_assembly(parts)
    return [
        part
        for part, inside in zip(parts, counted, strict=True)
        if not (inside and part.kind is StatementKind.LOCATION)
    ]
