"""Region names and their ids in records: hashes of names, or integers given by the user.

A name's id is a hash, so it needs no registration, survives compile caches, and agrees across
processes and ranks. A user may instead give small integers, even at run time, and name them on the
host. One bit of the id says which it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import index

from ikp.core.abi import HASHED_REGION, MAX_USER_REGION
from ikp.errors import RegionError, UsageError


@lru_cache(1024)
def region_id(name: str) -> int:
    """Return the id of a named region: 26 bits of BLAKE2b of its UTF-8, and the "hashed" bit."""
    digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
    return HASHED_REGION | (int.from_bytes(digest, "little") & (HASHED_REGION - 1))


def checked_name(name: object, what: str = "a region's name") -> str:
    """Return ``name`` if it can name a region; ``what`` is the word for it in the error.

    Raises:
        RegionError: it is not a string, empty, or not valid Unicode.
    """
    if not isinstance(name, str) or not name:
        raise RegionError(f"{what} is a non-empty string, not {name!r}.")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise RegionError(f"{what} is valid Unicode, not {name!r}: UTF-8 can't hold it.")
    return name


def checked_id(number: int) -> int:
    """Return ``number`` if it can be a region id given by the user.

    Raises:
        RegionError: it is not an integer, negative or too large.
    """
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise RegionError(f"a region id is an integer, not {number!r}.")
    number = index(number)
    if not 0 <= number <= MAX_USER_REGION:
        raise RegionError(
            f"region id {number} is out of range: an id is 0 to {MAX_USER_REGION}. "
            f"Use a string to name the region instead."
        )
    return number


def merge(sources: Iterable[Mapping[int, str]]) -> dict[int, str]:
    """Return one table of id -> name from many.

    Raises:
        RegionError: two different names share one id.
    """
    table: dict[int, str] = {}
    for source in sources:
        for number, name in source.items():
            if table.setdefault(number, name) != name:
                raise RegionError(
                    f"the regions {table[number]!r} and {name!r} share the id {number:#x}, so "
                    "their records can't be distinguished: rename one of them."
                )
    return table


def fallback_name(number: int) -> str:
    """Return a name for a region id whose name is not known."""
    return (
        f"region {number ^ HASHED_REGION:#09x}?" if number & HASHED_REGION else f"region {number}"
    )


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
