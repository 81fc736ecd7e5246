"""Source lines of the instructions in a PTX text, from ``.file``, ``.loc`` and ``inlined_at``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from ikp.ptx.statements import Kind, Statement
from ikp.sass.disassembly.listing import Line

_FILE = re.compile(r'\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)\s+(\d+)")
_COMMENT = re.compile(r"//\s*([^\n]*@\[[^\n]*)")
_PLACE = re.compile(r"([^\s:\[]+):(\d+):\d+")
_DEEPEST = 32

_Place = tuple[int, int, int]
"""The number of a file, line and column."""


class Locations:
    """The source lines of one kernel's instructions.

    ``inlined_at`` has the source location of the call of a line's function; that location may have
    an ``inlined_at`` itself. Triton 3.6 writes the whole chain in a comment instead.
    """

    def __init__(self, parts: Sequence[Statement], head: int, end: int) -> None:
        """Read the files of a module, and the locations between two of its statements."""
        self._files = {
            int(found[1]): found[2]
            for each in parts
            if each.kind is Kind.DIRECTIVE and (found := _FILE.match(each.code))
        }
        self._calls: dict[_Place, _Place] = {}
        self._chains: dict[int, tuple[Line, ...]] = {}
        located = [at for at in range(head, end) if parts[at].kind is Kind.LOCATION]
        for at in located:
            if (found := _INLINED.search(parts[at].code)) and (own := _LOC.match(parts[at].code)):
                self._calls[_place(own)] = _place(found)
        current: tuple[Line, ...] = ()
        for at in range(head, end):
            if parts[at].kind is Kind.LOCATION:
                current = self._chain(parts[at])
            self._chains[at] = current

    def of(self, at: int) -> tuple[Line, ...]:
        """Return the lines of a statement, the innermost function's first; none where unknown."""
        return self._chains.get(at, ())

    def _chain(self, location: Statement) -> tuple[Line, ...]:
        if commented := _COMMENT.search(location.text):
            return self._of_comment(commented[1])
        own = _LOC.match(location.code)
        if own is None or not int(own[2]):
            return ()  # line 0: the compiler doesn't say
        places = [_place(own)]
        called = _INLINED.search(location.code)
        following = _place(called) if called else None
        while following is not None and len(places) < _DEEPEST:
            places.append(following)
            following = self._calls.get(following)
        return tuple(Line(self._files.get(file, ""), number) for file, number, _ in places)

    def _of_comment(self, text: str) -> tuple[Line, ...]:
        """Return the lines of ``k.py:44:26 @[ k.py:63:60 ]``, with the files' whole paths."""
        paths = {PurePath(path).name: path for path in self._files.values()}
        return tuple(
            Line(paths.get(name, name), int(number))
            for name, number in _PLACE.findall(text)
            if int(number)
        )


def _place(found: re.Match[str]) -> _Place:
    return int(found[1]), int(found[2]), int(found[3])
