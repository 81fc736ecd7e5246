"""A context in which imports find installed packages, though the program's folder has files of the
same names, such as ``perfetto.py``.

A program finds modules in its own folder first, and so would ikp. So while ikp works, that folder
is not searched, and modules that the program has imported under such a name are taken out of
``sys.modules``; afterwards they are put back.
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
"""The modules that ikp has imported under names that are other modules to the program."""


@contextmanager
def installed() -> Iterator[bool]:
    """Have imports in a block find installed packages; yields whether any was shadowed."""
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
    """Return the needed packages of whose name the program's folder has a module.

    A folder of installed packages shadows none.
    """
    if os.path.basename(folder) in ("site-packages", "dist-packages"):  # noqa: PTH119 - of a text
        return []
    found = ((name, PathFinder.find_spec(name, [folder])) for name in _NEEDED)
    return [name for name, spec in found if spec is not None and spec.origin is not None]


def _taken(names: list[str]) -> dict[str, ModuleType]:
    """Remove packages and their submodules from ``sys.modules``, and return them."""
    mine = [each for each in sys.modules if each.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in mine}
