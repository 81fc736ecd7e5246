"""A PTX pass that moves clock reads and stores of records down, to where they cost least.

ptxas never moves an instruction across a clock read, and a record's store takes its time at its own
place. So, within straight-line code:

* A store moves down to the next record's store, or to the end of its block. So it is not directly
  behind a range's end, and no order between records changes. It passes the ends of MAX_PENDING
  ranges at most: until it is stored, a record occupies registers. It ends up in no range that
  begins on its way, but for one with a wait for every MMA in flight. There it is put before that
  wait, where the warp would be idle, and before a clock read there, unless its payload may be in
  flight.
* The clock read that ends a range moves down past address arithmetic behind it, which the plain
  kernel computes while it waits for the range's own operations. See below for how much.

**What a range holds.** A clock read that opens a range stays where it is written. One that ends a
range passes only integer arithmetic that

* needs no wait of its own: its operands are settled (``flight``), and
  it is none that takes more than a few cycles (division, shuffles, special registers);
* yields only addresses, descriptors and masks, nothing that a user would call work;
* is the compiler's, not of inline assembly;
* comes from no line that another range holds part of, but for ranges around this one;
* is HANDFUL machine instructions in all, at most, CHAIN of which may each need the one before.

So a range holds all instructions that were written in it, and at most a handful more. It never
loses one, and no wait ever moves from one range to another, into one or out of one.

The moves are always valid: the items passed neither read results of a moved item nor write its
operands. Only kernels that ``ikp.init`` marked are touched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from ikp.backends.triton.passes._flight import settled
from ikp.backends.triton.passes._items import Item, ItemKind, Ranges, items
from ikp.targets.ptx_slot import SCHEDULE_MARK

MAX_PENDING = 4
"""Records whose stores may be late at once. Unrolled code with dozens of ranges would spill."""

HANDFUL = 8
"""Machine instructions from behind a range that it may hold: as many as the addresses of four
copies take."""

CHAIN = 4
"""How many of them may each need the one before: at five cycles each, that is 10 ns at 2 GHz."""

_IDLE = re.compile(r"wgmma\.wait_group\.sync\.aligned 0;")


def schedule(text: str) -> str:
    """Return the PTX with the records of marked kernels placed; other text comes back unchanged."""
    if SCHEDULE_MARK not in text:
        return text
    found = items(text)
    _find_passable(found)
    _note_ranges(found)
    _sink_stores(found)
    _sink_ends(found)
    return _text(found)


def _text(found: list[Item]) -> str:
    """Return the text of items, with a ``.loc`` before each whose line is not the last one's."""
    made: list[str] = []
    last, moved = None, False
    for item in found:
        new_line = item.role is not ItemKind.NOTE and item.location not in (None, last)
        if (item.moved or moved or new_line) and made and not made[-1].endswith("\n"):
            made.append("\n")
        if new_line and item.location:
            made.append(item.location.text)
        if new_line or item.parts[0] is item.location:
            last = item.location
        made.append(item.text)
        moved = item.moved
    return "".join(made)


def _find_passable(found: list[Item]) -> None:
    """Leave ADDRESS only on settled arithmetic whose every use, direct or not, is an address."""
    _keep_addresses(found)
    for item, ready in zip(found, settled(found), strict=True):
        if item.role is ItemKind.ADDRESS and not ready:
            item.role = ItemKind.OTHER
        item.ready = ready


def _by_name(
    items: Iterable[Item], names: Callable[[Item], Iterable[str]]
) -> defaultdict[str, list[Item]]:
    found: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        for name in names(item):
            found[name].append(item)
    return found


def _keep_addresses(found: list[Item]) -> None:
    addresses = [item for item in found if item.role is ItemKind.ADDRESS]
    users = _by_name(found, lambda item: item.reads)
    makers = _by_name(addresses, lambda item: item.writes)
    work = [item for item in addresses if not _only_addresses(item, users)]
    while work:
        item = work.pop()
        if item.role is ItemKind.ADDRESS:
            item.role = ItemKind.OTHER
            work += [maker for name in item.reads for maker in makers[name]]


def _only_addresses(item: Item, users: dict[str, list[Item]]) -> bool:
    return all(
        user.role is ItemKind.ADDRESS or _uses_as_address(user, name)
        for name in item.writes
        for user in users[name]
        if user is not item
    )


def _uses_as_address(user: Item, name: str) -> bool:
    made = user.instruction
    return user.role is ItemKind.OTHER and made is not None and not made.uses_as_data(name)


def _note_ranges(found: list[Item]) -> None:
    """Note the ranges that are open at each clock read, and those of each address item's line."""
    ranges = Ranges(found)
    for at, item in enumerate(found):
        if item.role is ItemKind.END:
            item.ranges = frozenset(ranges.at(at))
        elif item.role is ItemKind.ADDRESS:
            item.ranges = frozenset(ranges.of_line(item.line))


def _sink_stores(found: list[Item]) -> None:
    """Move each store down to the next store or the end of its block, the last one first."""
    for at in range(len(found) - 1, -1, -1):
        if found[at].role is ItemKind.STORE:
            _move(found, at, 1, _resting_place(found, at))


def _resting_place(found: list[Item], at: int) -> int:
    """Return the last item that a store may pass, in no range that it was not in."""
    store, to, ended = found[at], at, 0
    opened: set[str] = set()
    for after in range(at + 1, len(found)):
        item = found[after]
        if item.role in (ItemKind.BORDER, ItemKind.STORE) or item.writes & store.reads:
            break
        if _IDLE.fullmatch(item.code):
            # The store would wait for a payload in flight in that range.
            return _before_clock(found, at, after) if store.ready or not opened else to
        if item.role is ItemKind.START:
            opened |= item.writes
        elif item.role is ItemKind.END:
            opened -= item.closes
            ended += 1
        if not opened and item.role is not ItemKind.NOTE:
            to = after
        if ended == MAX_PENDING:
            break
    return to


def _before_clock(found: list[Item], store: int, wait: int) -> int:
    """Return the last item that a store may pass on its way to a wait: before the clock read there.

    For a store between clock read and wait, ptxas would move the wait up, before the store.
    """
    at = wait - 1
    while at > store and (
        found[at].role in (ItemKind.NOTE, ItemKind.START) or _is_quick(found[at])
    ):
        if found[at].role is ItemKind.START:
            return at - 1
        at -= 1
    return wait - 1


def _is_quick(item: Item) -> bool:
    return item.instruction is not None and item.instruction.is_quick


def _sink_ends(found: list[Item]) -> None:
    """Move each clock read that ends a range down past a handful of addresses, the last first."""
    for at in range(len(found) - 1, -1, -1):
        if found[at].role is not ItemKind.END:
            continue
        # A store that had to stay behind it moves with it.
        count = 2 if at + 1 < len(found) and found[at + 1].role is ItemKind.STORE else 1
        _move(found, at, count, _last_passed(found, at, count))


def _last_passed(found: list[Item], at: int, count: int) -> int:
    """Return the last item that the end at ``at``, and its store with it, moves past."""
    to, left = at + count - 1, HANDFUL
    steps: dict[str, int] = {}  # how many instructions, one after another, made a register
    for after in range(at + count, len(found)):
        item = found[after]
        if not _may_pass(found[at : at + count], item):
            break
        if item.instruction is None:
            continue
        size = item.instruction.size
        step = size + max((steps.get(name, 0) for name in item.reads), default=0)
        left -= size
        if left < 0 or step > CHAIN:
            break
        steps.update(dict.fromkeys(item.writes, step))
        to = after
    return to


def _may_pass(moved: list[Item], item: Item) -> bool:
    """Return whether the end of a range, and its store with it, may move down past ``item``."""
    if item.role is ItemKind.NOTE:
        return True
    writes = frozenset[str]().union(*(part.writes for part in moved))
    reads = frozenset[str]().union(*(part.reads for part in moved))
    free = not item.writes & (reads | writes) and not item.reads & writes
    return item.role is ItemKind.ADDRESS and free and item.ranges <= moved[0].ranges


def _move(found: list[Item], at: int, count: int, to: int) -> None:
    """Move ``count`` items from ``at`` to behind the item at ``to``."""
    if to < at + count:
        return
    moved = found[at : at + count]
    for item in moved:
        item.moved = True
    found[at : to + 1] = [*found[at + count : to + 1], *moved]
