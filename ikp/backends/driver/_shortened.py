"""A demangled C++ function name shortened to 80 characters, with a hash for the parts left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count

LONGEST = 80
_DIGITS = 7
_CLOSING = {"<": ">", "(": ")", "{": "}", "[": "]"}
_OPERATOR = re.compile(r"\boperator\s*(<=>|->\*|<<=|>>=|->|<<|>>|<=|>=|<|>|\(\)|\[\])")
_OF_FILES = re.compile(r"\(anonymous namespace\)::|\b_(?:INTERNAL|GLOBAL__N_)_\w+::")
_NAMESPACES = re.compile(r"\b(?:[A-Za-z_]\w*::)+(?=\w)")
_SUFFIX = re.compile(r"(?<=\d)u?l{0,2}\b")
_MASKED = 0xE000
"""The first of the private characters that replace operators, whose brackets group nothing."""


def shortened(name: str) -> str:
    """Return a function's name in at most 80 characters.

    Namespaces of arguments are left out first, then its own. A cut name ends in a hash.

    Args:
        name: with its template's and its own arguments, as a demangler writes it.
    """
    text = _text(name)
    if len(text) <= LONGEST:
        return text
    text = _text(name, whole=False)
    return text if len(text) <= LONGEST else hashed(text, name)


def bare(name: str) -> str:
    """Return a function's name without arguments."""
    return _text(name, arguments=False)


def hashed(text: str, name: str, digits: int = _DIGITS) -> str:
    """Return a text, cut where it is too long, with a hash of the full name.

    Parts that a compiler makes of a file's name are not hashed: they change with each build.
    """
    room = LONGEST - 1 - digits
    text = text if len(text) <= room else f"{text[: room - 3]}..."
    return f"{text}#{sha256(_OF_FILES.sub('', name).encode()).hexdigest()[:digits]}"


def _text(name: str, *, whole: bool = True, arguments: bool = True) -> str:
    masks: list[str] = []
    path = _path(_parsed(_masked(_OF_FILES.sub("", name), masks)))
    if not arguments:
        path = [each for each in path if isinstance(each, str) or each.opening != "<"]
    text = "".join(_written(path, whole=whole))
    for number, each in zip(count(_MASKED), masks, strict=False):
        text = text.replace(chr(number), each)
    return text.strip() or name


def _masked(text: str, masks: list[str]) -> str:
    def mask(found: re.Match[str]) -> str:
        masks.append(found[0])
        return chr(_MASKED + len(masks) - 1)

    return _OPERATOR.sub(mask, text.replace(") const::", ")::"))


@dataclass(slots=True)
class _Group:
    """The nodes in a pair of brackets, split at the commas."""

    opening: str
    parts: list[list[str | _Group]] = field(default_factory=lambda: [[]])


_Nodes = list[str | _Group]


def _parsed(text: str) -> _Nodes:
    """Parse a name into groups by its brackets; an unmatched closing bracket is plain text."""
    stack = [_Group("")]
    for piece in re.split(r"([<>(){}\[\],])", text):
        here = stack[-1].parts
        opened = [at for at, each in enumerate(stack) if _CLOSING.get(each.opening) == piece]
        if piece in _CLOSING:
            group = _Group(piece)
            here[-1].append(group)
            stack.append(group)
        elif opened:
            del stack[opened[-1] :]
        elif piece == "," and len(stack) > 1:
            here.append([])
        elif piece:
            here[-1].append(piece)
    return stack[0].parts[0]


def _path(nodes: _Nodes) -> _Nodes:
    """Return a function's path: without its result, its parameters and the text behind them."""
    ends = [at for at in _brackets(nodes, "(") if not _goes_on(nodes, at)]
    path = nodes[: ends[-1]] if ends else nodes
    for at, each in reversed(list(enumerate(path))):
        if isinstance(each, str) and " " in each.rstrip():
            return [each.rstrip().rpartition(" ")[2], *path[at + 1 :]]
    return path


def _brackets(nodes: _Nodes, opening: str) -> list[int]:
    return [
        at for at, each in enumerate(nodes) if isinstance(each, _Group) and each.opening == opening
    ]


def _goes_on(nodes: _Nodes, at: int) -> bool:
    following = nodes[at + 1] if at + 1 < len(nodes) else ""
    return isinstance(following, str) and following.startswith("::")


def _written(nodes: Iterable[str | _Group], *, whole: bool = False) -> Iterator[str]:
    """Yield the text of a path; without namespaces, unless it is to be whole."""
    for each in _without_calls(list(nodes)):
        if isinstance(each, _Group):
            parts = ("".join(_written(part)).strip() for part in each.parts)
            yield f"{each.opening}{', '.join(parts)}{_CLOSING[each.opening]}"
        else:
            yield each if whole else _SUFFIX.sub("", _NAMESPACES.sub("", each))


def _without_calls(nodes: _Nodes) -> _Nodes:
    """Leave out the nodes between a function's name and the last lambda in it."""
    calls = [at for at in _brackets(nodes, "(") if _goes_on(nodes, at)]
    lambdas = _brackets(nodes, "{")
    if not calls or not lambdas or calls[0] > lambdas[-1]:
        return nodes
    return [*nodes[: calls[0]], "::", *nodes[lambdas[-1] :]]
