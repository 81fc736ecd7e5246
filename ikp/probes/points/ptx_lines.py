"""Source lines that the machine code has wrong, taken from the kernel's PTX.

Warpgroups' products: ptxas gives them other lines, but keeps their order. Inline assembly of
several lines: LLVM counts the source's line on with each of them (Triton 3.9 loads that way, CuTe
waits for mbarriers). So its instructions seem to come from some lines below; the line before it is
the right one. Inlined functions: Triton 3.6 names their callers in comments alone,
``k.py:44:26 @[ k.py:63:60 ]``. Barriers keep their order, too: so in a function with several calls,
each barrier gets the lines of its own call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import PurePath

from ikp.sass.disassembly.listing import Code, Line

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"\s*\.loc\s+(\d+\s+\d+)(\s+\d+)?(?:.*\binlined_at\s+(\d+\s+\d+\s+\d+))?")
_INLINED = re.compile(r"^\s*\.loc\s[^\n]*?//\s*([^\n]*@\[[^\n]*)$", re.MULTILINE)
_PLACE = re.compile(r"([^\s:\[]+):(\d+)(?::\d+)?(?=\s|$)")
"""File and line; the column is absent where not known, and then the line may be 0: none."""
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)?\.(?:entry|func)\b", re.MULTILINE)
_BARRIER = re.compile(r"\s*(?:@!?%\w+\s+)?bar(?:rier)?(?:\.cta)?\.(?:sync|arrive|red)\b")
_PRODUCT, _LOAD, _WAIT = "wgmma.mma_async", "ld.global", "mbarrier.t"
"""Parts of operations' names; the last one begins ``mbarrier.try_wait`` and ``.test_wait``."""

_Chain = tuple[Line, ...]
_Found = tuple[str, _Chain, _Chain]
"""An operation, its line as given, and its right line, each with the lines of the calls around."""


def product_lines(code: Code, ptx: str) -> dict[int, _Chain]:
    """Return the lines of each product, by its index; nothing where PTX and code don't match."""
    products = code.having(lambda opcode: "GMMA" in opcode.partition(".")[0])
    if not products:
        return {}
    lines = [right for op, _, right in _operations(ptx, code.name) if op == _PRODUCT]
    if len(lines) != len(products):
        return {}
    return dict(zip(products, lines, strict=True))


def load_lines(code: Code, ptx: str) -> dict[Line, Line]:
    """Return wrong lines of loads -> right ones; only where one line has one right one."""
    return _right_lines(code, ptx, _LOAD)


def wait_lines(code: Code, ptx: str) -> dict[Line, Line]:
    """Return wrong lines of mbarrier waits -> right ones: CuTe writes each in several lines."""
    return _right_lines(code, ptx, _WAIT)


def _right_lines(code: Code, ptx: str, which: str) -> dict[Line, Line]:
    found: dict[Line, set[Line]] = {}
    for op, given, right in _operations(ptx, code.name):
        if op == which and given and right:
            found.setdefault(given[0], set()).add(right[0])
    return {given: rights.pop() for given, rights in found.items() if len(rights) == 1}


def callers(code: Code, ptx: str) -> dict[Line, tuple[Line, ...]]:
    """Return lines of inlined functions -> those lines, and the lines of the calls they are in.

    Lines with several chains of calls are left out.
    """
    found = inlined(code, ptx).items()
    return {line: next(iter(chains)) for line, chains in found if len(chains) == 1}


def barrier_lines(code: Code, ptx: str) -> dict[int, tuple[Line, ...]]:
    """Return the lines of barriers and of their calls; nothing where PTX and code don't match.

    Barriers whose calls the PTX does not name are left out.
    """
    barriers = code.of("BAR")
    chains = list(_barriers(ptx, code.name)) if barriers else []
    pairs = list(zip(barriers, chains, strict=False))
    own = [code.instructions[at].lines[:1] == chain[:1] for at, chain in pairs if chain]
    if len(barriers) != len(chains) or not all(own):
        return {}
    return {at: chain for at, chain in pairs if chain}


def _barriers(ptx: str, kernel: str) -> Iterator[tuple[Line, ...]]:
    paths, text = _by_name(dict(_FILE.findall(ptx)).values()), ""
    for line in _of_kernel(ptx, kernel).split("\n"):
        if _LOC.match(line):
            text = found[1] if (found := _INLINED.match(line)) else ""
        elif _BARRIER.match(line):
            yield _chain(text, paths)


def inlined(code: Code, ptx: str) -> dict[Line, set[tuple[Line, ...]]]:
    """Return lines of inlined functions -> all their chains of calls, as comments have them."""
    paths = _by_name(dict(_FILE.findall(ptx)).values())
    found: dict[Line, set[tuple[Line, ...]]] = {}
    for text in set(_INLINED.findall(_of_kernel(ptx, code.name))):
        if chain := _chain(text, paths):
            found.setdefault(chain[0], set()).add(chain)
    return found


def _chain(text: str, paths: dict[str, str]) -> tuple[Line, ...]:
    """Return the lines that a comment names, the innermost first; none if one is not known."""
    places = _PLACE.findall(text)
    known = all(name in paths and int(number) for name, number in places)
    return tuple(Line(paths[name], int(number)) for name, number in places) if known else ()


def _by_name(paths: Iterable[str]) -> dict[str, str]:
    """Return the names of files -> their paths, where only one has that name."""
    paths = list(paths)
    counts = Counter(PurePath(path).name for path in paths)
    return {name: path for path in paths if counts[name := PurePath(path).name] == 1}


def _of_kernel(ptx: str, kernel: str) -> str:
    """Return the text of one kernel."""
    entry = re.search(rf"\.entry\s+{re.escape(kernel)}\b", ptx)
    rest = ptx[entry.end() if entry else 0 :]
    end = _FUNCTION.search(rest)
    return rest[: end.start()] if end else rest


@lru_cache(maxsize=1)  # products, loads and waits are asked for one after another
def _operations(ptx: str, kernel: str) -> tuple[_Found, ...]:
    return tuple(_found(ptx, kernel))


def _found(ptx: str, kernel: str) -> Iterator[_Found]:
    given: _Chain = ()
    right: _Chain = ()
    locations, inside = _Locations(ptx), False
    for line in _of_kernel(ptx, kernel).split("\n"):
        if found := _LOC.match(line):
            given = locations.chain(found)
            right = right if inside else given
        elif op := next((each for each in (_PRODUCT, _LOAD, _WAIT) if each in line), ""):
            yield op, given, right
        elif "inline asm" in line:
            inside = "begin" in line


class _Locations:
    """The source locations (``.loc``) of a PTX so far: code is inlined at one that came before."""

    def __init__(self, ptx: str) -> None:
        self._files = dict(_FILE.findall(ptx))
        self._chains: dict[str, _Chain] = {}  # by file, line and column

    def chain(self, found: re.Match[str]) -> _Chain:
        """Return the lines of one location and its calls, the innermost first."""
        at, around = (" ".join(text.split()) for text in (f"{found[1]}{found[2]}", found[3] or ""))
        outer = self._chains.get(around) or (self._line(around) if around else ())
        self._chains[at] = chain = (*self._line(at), *outer)
        return chain

    def _line(self, at: str) -> _Chain:
        file, number, *_ = at.split()
        return (Line(self._files.get(file, ""), int(number)),)
