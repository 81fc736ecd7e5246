"""Packages that ikp needs, found where they are installed though the program has files so called.

A program finds what lies in its own folder first, and so would ikp: a ``perfetto.py`` there is not
what traces are written with. So while ikp works, that folder is not searched, and what the program
has imported under such a name is out of sight; afterwards the program finds its own again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Final

_NEEDED: Final = ("isal", "perfetto", "google", "stevedore", "ddsketch", "rich", "pandas")
_ours: dict[str, ModuleType] = {}
"""What ikp has imported under names that mean something else to the program."""


@contextmanager
def installed() -> Iterator[bool]:
    """Have imports in a block find what is installed; gives whether they would not otherwise."""
    folder = sys.path[0] if sys.path else None
    there = _shadowed(folder) if folder is not None else []
    shadowed = [*there, *{each.partition(".")[0] for each in _ours}.difference(there)]
    if not shadowed:
        yield False
        return
    theirs = _taken(shadowed)
    sys.modules.update(_ours)
    if folder is not None and there:
        sys.path.remove(folder)
    try:
        yield True
    finally:
        if folder is not None and there:
            sys.path.insert(0, folder)
        _ours.update(_taken(shadowed))
        sys.modules.update(theirs)


def _shadowed(folder: str) -> list[str]:
    """Return what is needed that the program's folder has something of the same name for.

    Where the first place is that of installed packages, nothing else is searched.
    """
    if os.path.basename(folder) in ("site-packages", "dist-packages"):  # noqa: PTH119 - of a text
        return []
    found = ((name, PathFinder.find_spec(name, [folder])) for name in _NEEDED)
    return [name for name, spec in found if spec is not None and spec.origin is not None]


def _taken(names: list[str]) -> dict[str, ModuleType]:
    """Take packages and their parts out of ``sys.modules``, and return them."""
    mine = [each for each in sys.modules if each.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in mine}
