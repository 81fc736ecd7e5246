"""Names of kernels: a C++ symbol demangled, and shortened to a label of at most 80 characters.

A label that was cut ends in a hash of the name.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
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


def without_arguments(name: str) -> str:
    """Return a function's name without arguments."""
    return _text(name, arguments=False)


def hashed(text: str, name: str) -> str:
    """Return a text, cut where it is too long, with a hash of the full name.

    Parts that a compiler makes of a file's name are not hashed: they change with each build.
    """
    room = LONGEST - 1 - _DIGITS
    text = text if len(text) <= room else f"{text[: room - 3]}..."
    return f"{text}#{sha256(_OF_FILES.sub('', name).encode()).hexdigest()[:_DIGITS]}"


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
class _BracketGroup:
    """The nodes in a pair of brackets, split at the commas."""

    opening: str
    parts: list[list[str | _BracketGroup]] = field(default_factory=lambda: [[]])


_Nodes = list[str | _BracketGroup]


def _parsed(text: str) -> _Nodes:
    """Parse a name into groups by its brackets; an unmatched closing bracket is plain text."""
    stack = [_BracketGroup("")]
    for piece in re.split(r"([<>(){}\[\],])", text):
        here = stack[-1].parts
        opened = [at for at, each in enumerate(stack) if _CLOSING.get(each.opening) == piece]
        if piece in _CLOSING:
            group = _BracketGroup(piece)
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
        at
        for at, each in enumerate(nodes)
        if isinstance(each, _BracketGroup) and each.opening == opening
    ]


def _goes_on(nodes: _Nodes, at: int) -> bool:
    following = nodes[at + 1] if at + 1 < len(nodes) else ""
    return isinstance(following, str) and following.startswith("::")


def _written(nodes: Iterable[str | _BracketGroup], *, whole: bool = False) -> Iterator[str]:
    """Yield the text of a path; without namespaces, unless it is to be whole."""
    for each in _without_calls(list(nodes)):
        if isinstance(each, _BracketGroup):
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


_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")
_NAME = re.compile(r"(?<![0-9])(?<!L[a-z])(?<!S)(?<!T)([1-9]\d*)(?=[A-Za-z_])(?!_)")
"""The length before a name in a mangled symbol; no number in a literal or a substitution."""


@cache
def demangled(symbol: str) -> str:
    """Return a kernel's name with all its arguments; the symbol itself if it can't be demangled."""
    if not symbol.startswith("_Z"):
        return symbol
    return next(filter(None, (_demangled(each, symbol) for each in _LIBRARIES)), symbol)


@cache
def readable(symbol: str) -> str:
    """Return a kernel's name with as many template arguments as fit, by the symbol alone.

    Where some of them are left out, a hash is in their place.
    """
    name = demangled(symbol)
    if name.startswith("_Z"):
        path, arguments = _parts(name)
        return hashed(f"{path}<{', '.join(arguments)}>", name)
    return shortened(name)


@cache
def labels(symbol: str) -> list[str]:
    """Return candidates for a kernel's label, best first: two kernels may share the first ones."""
    label = readable(symbol)
    return [label, hashed(label, demangled(symbol)), hashed(label, symbol)]


@cache
def bare(symbol: str) -> str:
    """Return a kernel's name without arguments: ``at::native::softmax_warp_forward``."""
    name = demangled(symbol)
    return _parts(name)[0] if name.startswith("_Z") else without_arguments(name)


@cache
def _library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:  # names stay as the compiler wrote them
        return None


def _demangled(library: str, symbol: str) -> str:
    """Return a symbol as a C++ library demangles it; "" where it does not.

    GCC's library refuses names of more than 1,024 characters, as some of CUTLASS's kernels have.
    """
    if (loaded := _library(library)) is None:
        return ""
    demangle = getattr(loaded, "__cxa_demangle")
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    made = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not made:
        return ""
    try:
        return ctypes.string_at(made).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(made))


def _parts(symbol: str) -> tuple[str, list[str]]:
    """Return the path that a mangled name begins with, and the names in its arguments, in order.

    Of a qualified name in the arguments, only the last part is returned, without namespaces.
    """
    named = list(_named(symbol))
    path = next((at for at, (_, last) in enumerate(named) if last), 0) + 1
    names = "::".join(name for name, _ in named[:path])
    return names or symbol, [name for name, last in named[path:] if last]


def _named(symbol: str) -> Iterator[tuple[str, bool]]:
    """Yield the names in a mangled name, and whether each is the last one of its path."""
    at = 0
    while found := _NAME.search(symbol, at):
        at = found.end() + int(found[1])
        name = symbol[found.end() : at]
        if not name.startswith("_GLOBAL__N_"):
            yield name, not symbol[at : at + 1].isdigit()
