"""``Marks``: what a kernel's PTX says of its records: names of regions, tags, inserted code."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ikp.core.abi import KIND_SHIFT, REGION_MASK, Kind
from ikp.core.regions import fallback_name, merge, region_id
from ikp.errors import InspectError
from ikp.probes.kept_code import MACHINE_MARK
from ikp.targets.ptx import STORE_MARK
from ikp.targets.ptx_slot import SPEC_MARK

_MARK = re.compile(rf"^\s*{STORE_MARK} (?:(\d+) (\".*\")|.*)$", re.MULTILINE)
_TAG = re.compile(r"v[24]\.b32 \[[\w+]+\], \{(0x[0-9a-f]+),")
_TOTALS = re.compile(rf"^\s*{re.escape(SPEC_MARK)} .*\btotals=1\b", re.MULTILINE)
_MACHINE = re.compile(rf"^{MACHINE_MARK} (.*)$", re.MULTILINE)
_CONDITION = re.compile(r"setp\.ne\.u32 w,")
_RUN_TIME = "(id known at run time)"


@dataclass(frozen=True, slots=True)
class Marks:
    """The records that a PTX text stores."""

    names: dict[int, str]  # region id -> name
    tags: dict[int, str]  # tag of each record whose tag is a constant -> name of its region
    count: int
    ours: tuple[tuple[int, int], ...] = ()
    """With records in the machine code: the inserted code, as ranges of bytes (first, end)."""
    plain: tuple[int, int] = (0, 0)
    """The same: the part of it that copies the kernel's own code, for blocks that don't record."""
    kernel: str = ""
    """The same: the kernel's name. It may have no range but itself, which is no record."""
    shared: int | None = None
    """The same: bytes of shared memory that a block has, where that is known."""
    plain_registers: int | None = None
    """The same: registers of a thread of the plain kernel, where that is known."""
    named_by_code: bool = False  # ranges that ikp named, by what the machine code holds
    sometimes: frozenset[int | None] = frozenset()
    """Regions of records that are kept under a condition; None: a region known at run time only."""

    def always_kept(self, tag: int | None) -> bool:
        """Return whether each record of a tag's region is kept whenever it is reached."""
        return (None if tag is None else tag & REGION_MASK) not in self.sometimes

    def name(self, tag: int | None) -> str:
        """Return the name of the region of a tag."""
        if tag is None:
            return _RUN_TIME
        region = tag & REGION_MASK
        return self.names.get(region) or fallback_name(region)


def read(ptx: str) -> Marks:
    """Return the marks in a PTX text; none in a text without them.

    Raises:
        RegionError: two names share one id.
        InspectError: the facts of machine code in it are damaged.
    """
    if found := _MACHINE.search(ptx):
        try:
            return _of_machine(json.loads(found[1]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InspectError(
                f"the PTX beside this machine code is damaged: what it says of the records can't "
                f"be read ({error}). Record the kernel again."
            ) from error
    places = list(_MARK.finditer(ptx))
    names = merge({int(m[1]): json.loads(m[2])} for m in places if m[1])
    ends = [*(m.start() for m in places[1:]), len(ptx)]
    tags: dict[int, str] = {}
    sometimes: set[int | None] = set()
    for mark, end in zip(places, ends, strict=False):
        if _CONDITION.search(ptx, mark.end(), end):
            sometimes.add(int(mark[1]) if mark[1] else None)
        if found := _TAG.search(ptx, mark.end(), end):
            tag = int(found[1], 16)
            tags[tag] = names.get(tag & REGION_MASK) or fallback_name(tag & REGION_MASK)
    return Marks(names, tags, len(places), sometimes=frozenset(sometimes))


def _of_machine(said: dict[str, Any]) -> Marks:
    names = merge({region_id(name): name} for name in said["names"])
    ours = tuple((first, last) for first, last in said["ours"])
    own, shared = said["names"][0], said.get("shared")
    first, last = said.get("plain") or (0, 0)
    registers, _ = said.get("registers") or (None, None)
    return Marks(
        *(names, {}, len(names), ours, (first, last), own, shared, registers), named_by_code=True
    )


def keeps_totals(ptx: str) -> bool:
    """Return whether a PTX text keeps totals in registers: it has no records but totals."""
    return _TOTALS.search(ptx) is not None


def kind(tag: int | None, *, instant: bool) -> str:
    """Return ``"range"`` or ``"instant"``, by the tag or, without one, by the clock reads."""
    if tag is None:
        return "instant" if instant else "range"
    return Kind(tag >> KIND_SHIFT).name.lower()
