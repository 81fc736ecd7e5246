"""Place clock reads and record stores where they cost least, in compiled PTX.

ptxas never moves an instruction across a clock read. In a kernel with no records it fills the wait
for a barrier or an MMA with the address arithmetic of what comes next; a clock read after the wait
pins that arithmetic behind it, on the critical path. That, not the records' own instructions, is
most of what recording costs in a tight loop (docs/decisions/0003). So, within straight-line code:

* a store moves down to the next record's store, or to the end of its block: it leaves the gap
  between a range's end and what follows, and no order between records changes. It passes the ends
  of MAX_PENDING ranges at most: until it is stored, a record occupies registers. It stops before a
  wait for every MMA in flight, where the warp would stand idle, and before the clock read there;
* a clock read moves down past arithmetic that only computes addresses, descriptors and masks for
  the memory and matrix instructions after it, one that opens a range also past the fence before a
  group of MMAs. It never crosses a memory access, barrier, MMA, label or branch, nor arithmetic
  that a user would call work: everything that yields data;
* a barrier that only records part from the same barrier before it is left out, as the compiler does
  where no record is.

The moves are always valid: the text moved past neither reads what is moved nor writes what it
reads. A range never becomes empty by it. Only kernels that ``ikp.init`` marked are touched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum, auto

from ikp.targets.ptx import CLOCK_MARK, END_MARK, STORE_MARK
from ikp.targets.ptx_lines import LOCATION, without_counted_lines
from ikp.targets.ptx_slot import SCHEDULE_MARK


class Role(Enum):
    """What an item of a PTX body is to the scheduler."""

    NOTE = auto()  # blank, comment, .loc: no instruction
    ADDRESS = auto()  # arithmetic that yields only addresses, descriptors or masks
    OTHER = auto()  # any other instruction
    BORDER = auto()  # label, branch, call, declaration: nothing crosses it
    START = auto()  # a clock read that opens a range
    END = auto()  # a clock read that closes a range
    STORE = auto()  # the store of a record


@dataclass(slots=True)
class Item:
    """Consecutive lines that move as one, with the registers they write and read.

    Each knows its ``.loc``, so that what moves keeps its source line, and what stays, too.
    """

    role: Role
    lines: list[str]
    writes: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    location: str = ""


def schedule(text: str) -> str:
    """Return the PTX with the records of marked kernels placed; other text comes back unchanged."""
    if SCHEDULE_MARK not in text:
        return text
    items = _items(without_counted_lines(text.split("\n")))
    _mark_addresses(items)
    items = _merge_barriers(items)
    _sink_stores(items)
    _sink_clocks(items)
    return "\n".join(_lines(items))


MAX_PENDING = 4
"""Records whose stores may be late at once. Unrolled code with dozens of ranges would spill."""

_REGISTER = re.compile(r"%[a-z]+\d+")
_INSTRUCTION = re.compile(r"^\s*(?P<guard>@!?%\w+\s+)?(?P<op>[a-z][\w.:]*)(?P<operands>\s.*|;)")
_TARGET = re.compile(r"\s*(?:\{[^}]*\}|[^,]*)")
_PURE = frozenset(
    (
        "abs",
        "add",
        "and",
        "bfe",
        "bfi",
        "bfind",
        "brev",
        "clz",
        "cvt",
        "cvta",
        "div",
        "lop3",
        "mad",
        "max",
        "min",
        "mov",
        "mul",
        "neg",
        "not",
        "or",
        "popc",
        "prmt",
        "rem",
        "sad",
        "selp",
        "setp",
        "shf",
        "shfl",  # of a number that all lanes share, as compilers do with a warp's
        "shl",
        "shr",
        "slct",
        "sub",
        "xor",
    )
)
_FLOAT = re.compile(r"\.(f16|f32|f64|bf16|f16x2|bf16x2|tf32|e4m3|e5m2)")
_BARRIERS = ("bar.sync", "barrier.sync")
_FENCE = "wgmma.fence"  # orders registers before the first MMA after it: no work, no wait
_IDLE = re.compile(r"\s*wgmma\.wait_group\.sync\.aligned\s+0;")
_BORDERS = ("bra", "brx", "call", "ret", "exit", "trap", "bar.warp", "setmaxnreg", "brkpt")
# Instructions whose register operands are addresses, descriptors and masks; vectors are data.
_VECTOR = re.compile(r"\{[^}]*\}")
_ASYNC = ("cp.async", "cp.reduce", "wgmma.mma_async", "tcgen05", "mbarrier", "prefetch", "ldmatrix")


def _items(lines: list[str]) -> list[Item]:
    items: list[Item] = []
    at = 0
    location = ""
    while at < len(lines):
        location = lines[at] if lines[at].strip().startswith(LOCATION) else location
        stop = at + 1
        if lines[at].strip().startswith((CLOCK_MARK, STORE_MARK)):
            while lines[stop - 1].strip() != END_MARK:
                stop += 1
            made = _record_items(lines[at:stop])
        else:
            made = [_item(lines[at])]
        for item in made:
            item.location = location
        items += made
        at = stop
    return items


def _lines(items: list[Item]) -> list[str]:
    """Return the text of items, with another ``.loc`` wherever the last one is not theirs."""
    lines: list[str] = []
    last = ""
    for item in items:
        if item.lines[0] == item.location:
            last = item.location
        elif item.role is not Role.NOTE and item.location != last:
            last = item.location
            lines.append(last)
        lines += item.lines
    return lines


def _record_items(lines: list[str]) -> list[Item]:
    """Split a marked block into its clock read and its store, where it has them.

    A store may also be arithmetic: that of a total, which has no clock read where it only counts.
    """
    stores = [i for i, line in enumerate(lines) if line.strip().startswith(STORE_MARK)]
    if not stores:
        return [Item(Role.START, lines, writes=_target(lines))]
    clock, store = lines[: stores[0]], lines[stores[0] :]
    reads = frozenset(register for line in store for register in _REGISTER.findall(line))
    made = [Item(Role.STORE, store, reads=reads)]
    if clock:
        made.insert(0, Item(Role.END, clock, writes=_target(clock)))
    return made


def _target(read: list[str]) -> frozenset[str]:
    """Return the register that a marked clock read writes; ``%clock64`` looks like another."""
    return frozenset(_REGISTER.findall(read[1])[:1])


def _item(line: str) -> Item:
    text = line.strip()
    if not text or text.startswith(("//", LOCATION)):
        return Item(Role.NOTE, [line])
    match = _INSTRUCTION.match(line)
    # A brace opens a scope with registers of its own: assembly that is not ours, left alone.
    if match is None or text.startswith((".", "{", "}", "$")) or "ikp_" in text:
        return Item(Role.BORDER, [line])
    op, operands = match["op"], match["operands"]
    if op.startswith(_BORDERS):
        return Item(Role.BORDER, [line])
    pure = op.split(".")[0] in _PURE and not match["guard"] and text.count(";") == 1
    target = _TARGET.match(operands)[0] if pure else operands  # type: ignore[index]
    writes = frozenset(_REGISTER.findall(target))
    reads = frozenset(_REGISTER.findall(line))
    if pure:
        reads = frozenset(_REGISTER.findall(operands[len(target) :]))
        movable = not _FLOAT.search(op)
        return Item(Role.ADDRESS if movable else Role.OTHER, [line], writes, reads)
    return Item(Role.OTHER, [line], writes, reads)


def _mark_addresses(items: list[Item]) -> None:
    """Leave ADDRESS only on arithmetic whose every use, direct or not, is an address."""
    users: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        for register in item.reads:
            users[register].append(item)
    work = [
        item for item in items if item.role is Role.ADDRESS and not _only_addresses(item, users)
    ]
    makers: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        if item.role is Role.ADDRESS:
            for register in item.writes:
                makers[register].append(item)
    while work:
        item = work.pop()
        if item.role is Role.ADDRESS:
            item.role = Role.OTHER
            work += [maker for register in item.reads for maker in makers[register]]


def _only_addresses(item: Item, users: dict[str, list[Item]]) -> bool:
    return all(
        user.role is Role.ADDRESS or _uses_as_address(user, register)
        for register in item.writes
        for user in users[register]
        if user is not item
    )


def _uses_as_address(user: Item, register: str) -> bool:
    if user.role is not Role.OTHER:
        return False
    line = user.lines[0]
    op = _INSTRUCTION.match(line)
    if op is not None and op["op"].startswith(_ASYNC):
        return register not in _REGISTER.findall("".join(_VECTOR.findall(line)))
    outside = re.sub(r"\[[^\]]*\]", "", line)
    return register not in _REGISTER.findall(outside)


def _merge_barriers(items: list[Item]) -> list[Item]:
    """Leave out a barrier that only records part from the same barrier before it.

    Triton leaves out the second of two barriers in a row, and does not know that a record between
    them has nothing to do with either.
    """
    kept: list[Item] = []
    last, parted = "", False
    for item in items:
        text = " ".join(item.lines[0].split())
        if text.startswith(_BARRIERS):
            if text == last and parted:
                continue
            last, parted = text, False
        elif item.role in (Role.START, Role.END, Role.STORE):
            parted = True
        elif item.role in (Role.OTHER, Role.BORDER):
            last = ""
        kept.append(item)
    return kept


def _sink_stores(items: list[Item]) -> None:
    """Move each store down to the next store or the end of its block, the last one first."""
    for at in range(len(items) - 1, -1, -1):
        store = items[at]
        if store.role is not Role.STORE:
            continue
        to, ended = at, 0
        for after in range(at + 1, len(items)):
            item = items[after]
            if item.role in (Role.BORDER, Role.STORE) or item.writes & store.reads:
                break
            if _IDLE.match(item.lines[0]):
                to = _before_clock(items, at, after)
                break
            to = after
            ended += item.role is Role.END
            if ended == MAX_PENDING:
                break
        items[at : to + 1] = [*items[at + 1 : to + 1], store]


def _before_clock(items: list[Item], store: int, wait: int) -> int:
    """Return the last item that a store may pass on its way to a wait: before its clock read.

    Between that and the wait, ptxas would move the wait up and leave the store behind it.
    """
    at = wait - 1
    while at > store and items[at].role in (Role.NOTE, Role.ADDRESS, Role.START):
        if items[at].role is Role.START:
            return at - 1
        at -= 1
    return wait - 1


def _sink_clocks(items: list[Item]) -> None:
    """Move each clock read down past the address arithmetic that follows it, the last one first."""
    for at in range(len(items) - 1, -1, -1):
        clock = items[at]
        if clock.role not in (Role.START, Role.END):
            continue
        size = 2 if items[at + 1].role is Role.STORE else 1  # a store that stayed goes along
        to = at + size
        while to < len(items) and _may_pass(items[at : at + size], items[to]):
            to += 1
        met = items[to].role if to < len(items) else Role.BORDER
        if not (clock.role is Role.START and met is Role.END):  # else the range would be empty
            items[at:to] = [*items[at + size : to], *items[at : at + size]]


def _may_pass(moved: list[Item], item: Item) -> bool:
    """Return whether a clock read, and a store with it, may move down past ``item``."""
    if item.role is Role.NOTE:
        return True
    if item.lines[0].strip().startswith(_FENCE):
        return moved[0].role is Role.START
    writes = frozenset[str]().union(*(part.writes for part in moved))
    reads = frozenset[str]().union(*(part.reads for part in moved))
    free = not item.writes & (reads | writes) and not item.reads & writes
    return item.role is Role.ADDRESS and free
