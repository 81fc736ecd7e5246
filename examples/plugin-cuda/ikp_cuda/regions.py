"""Region names in C++ source: found by the host, and turned into a table for the compiler.

The device stores ids, the host must know their names. So ``build`` looks for the names before it
compiles, and the compiler takes a name only if it stands in the table that came out: a name that
was overlooked does not compile, and no record can have an id that the host can't name.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable

from ikp.plugins import checked_name, merge, region_id

_VERB = re.compile(r'\b(?:Range(?:\s+\w+)?|start|instant)\s*[({]\s*"([^"\\\n]+)"')

_lock = threading.Lock()
_known: dict[int, str] = {}


def find(source: str, more: Iterable[str] = ()) -> dict[int, str]:
    """Return the names that follow a verb in ``source``, and ``more``, by id. Remembers them.

    Raises:
        RegionError: two names share one id, or one of ``more`` can't be a name.
    """
    names = [*_VERB.findall(source), *map(checked_name, more)]
    table = merge({region_id(name): name} for name in names)
    with _lock:
        merge([_known, table])
        _known.update(table)
    return table


def known() -> dict[int, str]:
    """Return the names found so far in this process, by id."""
    with _lock:
        return dict(_known)
