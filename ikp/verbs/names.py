"""Region names seen while kernels were traced in this process, for all DSLs."""

from __future__ import annotations

import threading

from ikp.core.regions import checked_name, merge, region_id

_lock = threading.Lock()
_names: dict[int, str] = {}


def intern(name: object) -> tuple[int, str]:
    """Return the id of a region's name, and the name, and remember both.

    Raises:
        RegionError: ``name`` is not a non-empty string, or another name seen before has its id.
    """
    text = checked_name(name)
    number = region_id(text)
    with _lock:
        merge([_names, {number: text}])
        _names[number] = text
    return number, text


def known() -> dict[int, str]:
    """Return the names interned so far, by region id."""
    with _lock:
        return dict(_names)
