"""Splits PTX text into statements; joined again, they are the text byte for byte.

PTX is free-form, as C is: several statements may share a line, one may take several, and braces
open scopes. Compilers write a line each, but hand-written inline assembly need not, so every pass
over PTX works on these statements (PTX ISA, chapter "Syntax"; "statement" is its word).

A statement's text has its indentation and the rest of its line: moved, it takes its line along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

BEGIN_ASSEMBLY = "// begin inline asm"
_END_ASSEMBLY = "// end inline asm"
"""The comments that LLVM writes around inline assembly, the user's and Triton's own alike."""


class Kind(Enum):
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

    kind: Kind
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
    return part.text.strip() if part.kind is Kind.COMMENT else ""


def in_assembly(parts: Iterable[Statement]) -> list[bool]:
    """Return for each statement whether it is in inline assembly, its two comments included."""
    found, inside = [], False
    for part in parts:
        inside = inside or mark_of(part) == BEGIN_ASSEMBLY
        found.append(inside)
        inside = inside and mark_of(part) != _END_ASSEMBLY
    return found


def _each(text: str) -> Iterator[Statement]:
    at = 0
    while at < len(text):
        found = _FORMS.match(text, at)
        if found is not None and found.end() > at:
            kind, stop = Kind[str(found.lastgroup)], found.end()
        else:
            kind, stop = _long(text, at)
        yield Statement(kind, text[at:stop])
        at = stop


def _long(text: str, at: int) -> tuple[Kind, int]:
    """Return the kind of the statement at ``at``, and its end: behind a semicolon or at a brace."""
    if _HEAD.match(text, at):
        return _ended(text, at, Kind.HEAD, before="{")
    if _SECTION.match(text, at):
        return _ended(text, at, Kind.DIRECTIVE, block=True)
    directive = _DIRECTIVE.match(text, at)
    return _ended(text, at, Kind.DIRECTIVE if directive else Kind.INSTRUCTION)


def _ended(
    text: str, at: int, kind: Kind, before: str = "", block: bool = False
) -> tuple[Kind, int]:
    """Find a statement's end: its semicolon, the brace ``before`` which it ends, or its block's."""
    depth = 0
    for piece in _PIECE.finditer(text, at):
        mark = piece["mark"]
        if mark and mark == before:
            return kind, piece.start()
        depth += {"{": 1, "}": -1}.get(mark or "", 0)
        if (mark == ";" and depth <= 0) or (block and mark == "}" and depth == 0):
            rest = _AFTER.match(text, piece.end())
            return kind, rest.end() if rest else piece.end()
    return Kind.OTHER, len(text)


def _only_strings(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else " "
