"""What a user gives a session, refused where it can't be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ikp.core import abi
from ikp.core.abi import ClockKind
from ikp.core.overhead import Overhead
from ikp.core.regions import checked_id, checked_name
from ikp.errors import UsageError
from ikp.session.sizing import DEFAULT_BYTES


def choice(kind: Any, value: str, name: str, allowed: tuple[str, ...]) -> Any:
    """Return the member of an enum that an option names."""
    if value not in allowed:
        raise UsageError(f"{name}={value!r} is unknown: use {_either(allowed)}.")
    return kind[value.upper()]


def checked_mode(mode: Any, overflow: str, clock: ClockKind) -> str:
    """Return what a session keeps, if its other options go with that."""
    if mode not in DEFAULT_BYTES:
        raise UsageError(f"mode={mode!r} is unknown: use 'timeline' or 'totals'.")
    if mode == "totals" and overflow == "wrap":
        raise UsageError(
            "mode='totals' has nothing that overflow='wrap' could keep the latest of: a total is "
            "of all ranges of its region. Leave overflow out."
        )
    if mode == "totals" and clock.bits > abi.WORD_BITS:
        raise UsageError(
            f"mode='totals' adds up ranges shorter than 2**32 ticks each, in sums of 64 bits: "
            f"clock={clock.unit.name.lower()!r} does. For single ranges longer than that, leave "
            "mode out."
        )
    return str(mode)


def checked_deduction(wish: Any, totals: bool) -> bool | Overhead:
    """Return what is to be deducted, if there is a timeline from which it can be."""
    if not isinstance(wish, (bool, Overhead)):
        raise UsageError(
            f"deduct_overhead={wish!r} is unknown: use True, False, or what ikp.calibrate returned."
        )
    if wish and totals:
        raise UsageError(
            "mode='totals' has no timeline, and so no place at which overhead could be deducted. "
            "Leave deduct_overhead out, or mode."
        )
    return wish


def _either(names: tuple[str, ...]) -> str:
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}"


def region_table(regions: Mapping[int, str] | Sequence[str] | None) -> dict[int, str]:
    """Return the names that a user gives to numbers; a list names 0, 1, 2, ..."""
    if isinstance(regions, (list, tuple)):
        regions = dict(enumerate(regions))
    if not isinstance(regions, Mapping | None):
        raise UsageError(
            "regions maps numbers to names, like {0: 'load'}, or lists the names of 0, 1, ...; got "
            f"{regions!r}."
        )
    return {checked_id(number): checked_name(name) for number, name in (regions or {}).items()}
