"""PTX inline assembly of the verbs that write records, generated from ``ikp.core.abi``.

``init`` and ``finish`` are in ``ptx_slot``, totals in ``ptx_totals``.

The write cursor lives in PTX registers that ``init`` declares at function scope and every later
verb uses by name. Nothing is threaded through the DSL's values, so loops, branches and inlined
helpers need no help from the user. Live registers per thread, from init to the last verb::

    ikp_cur   number of records attempted so far
    ikp_high  high 32 bits of every address in the segment
    ikp_base  low 32 bits of the address of the slot's first record
    ikp_lim   stop: capacity of the slot; ring: capacity - 1, an index mask;
              0 in lanes that never record

In a stream (``OverflowMode.STREAM``), the slot header says at any time how many records the warp
has stored, and which range is open: by one store where a range opens, and one behind each record.
They are volatile, so that none is dropped for the next one.

One 32-bit compare elects the recording lane and bounds the store together: in lanes other than 0
the limit is 0. A segment never crosses a multiple of 4 GiB (the arena sees to it), so an address is
32-bit arithmetic and the register pair (low, high). It is made of a number that is less than the
capacity: no number of records ever leads out of the slot. The count goes on when the slot is full,
by one unconditional add that compilers fold where several records follow each other.

Every verb is volatile assembly: compilers neither drop, merge nor reorder it against loads, stores
and other such blocks. A record is two parts between comment marks, the clock read and the store,
so that Triton's pass ``schedule`` can place each where it costs least. The mark of a store names
its region: the host reads names from the kept PTX of a kernel that came from a compile cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.segment import Spec

CLOCK_MARK = "// ikp.clock"
STORE_MARK = "// ikp.store"
ROLE_MARK = "// ikp.role"
END_MARK = "// ikp.end"
HOST_NAMED = "region named on the host"
"""The comment in a mark for a region whose name the kernel does not know."""

SLOT_ADDRESS = f"sub.u32 slot, ikp_base, {abi.SLOT_HEADER_BYTES};"
"""The instruction that makes ``slot`` the low half of the slot header's address."""

CLOCK_READ = {
    ClockKind.CYCLES: "mov.u32 $0, %clock;",
    ClockKind.GLOBALTIMER: "mov.u32 $0, %globaltimer_lo;",
    ClockKind.CYCLES64: "mov.u64 $0, %clock64;",
    ClockKind.GLOBALTIMER64: "mov.u64 $0, %globaltimer;",
}


@dataclass(frozen=True, slots=True)
class Asm:
    """An inline-assembly block: ``$0`` is its result, ``$1`` and up its operands."""

    code: str
    constraints: str

    @property
    def bits(self) -> tuple[int, ...]:
        """How many bits the result has, and each operand: 32 or 64."""
        return tuple(64 if one.endswith("l") else 32 for one in self.constraints.split(","))


@dataclass(frozen=True, slots=True)
class RecordCode:
    """The parameters of a record's code: tag, comment, and optional operands.

    ``tag`` is None where it is known only at run time. ``where`` says that an operand decides
    whether the record is stored, ``index`` that an operand is its index in the slot.
    """

    tag: int | None
    comment: str
    where: bool = False
    index: bool = False


def region_comment(region: int, name: str) -> str:
    """Return the comment in a mark for its region: ``<id> <name as JSON>``, pure ASCII."""
    return f"{region} {json.dumps(name)}".replace("$", r"\u0024")  # LLVM would expand a dollar


def start(spec: Spec, comment: str = "", tag: int | None = 0) -> Asm:
    """The result is the start word, as wide as the clock is read.

    Args:
        spec: how the kernel records.
        comment: names in the mark the region that is opened, for the check for ranges without end.
        tag: of the open range in a stream; 0 publishes none. None: it is the only operand.
    """
    mark = f"{CLOCK_MARK} {comment}".strip()
    code, word = f"{mark}\n{CLOCK_READ[spec.clock]}\n{END_MARK}", _clock_word(spec)
    if spec.overflow is not OverflowMode.STREAM or tag == 0:
        return Asm(code, f"={word}")
    code += _OPENED.format(
        halves="mov.u32 l, $0; mov.u32 h, 0;" if word == "r" else "mov.b64 {l, h}, $0;",
        tag="$1" if tag is None else f"{tag:#x}",
    )
    return Asm(code, f"=&{word},r" if tag is None else f"={word}")


def end(spec: Spec, record: RecordCode) -> Asm:
    """Store one range. Operands: [tag], start word, payload, [where], [index]."""
    return _record(spec, record, ["tag", "start", "payload"])


def instant(spec: Spec, record: RecordCode) -> Asm:
    """Store one instant. Operands: [tag], payload, [where], [index]."""
    return _record(spec, record, ["tag", "payload"])


def role(number: int, comment: str) -> Asm:
    """No operands. Writes the id of the role's name to the slot header."""
    at = abi.field_offsets(abi.SLOT_HEADER)["role"]
    code = _ROLE.format(comment=comment, at=at, role=number)
    return Asm(f"{code}\nmov.u32 $0, 0;", "=r")


def opened(code: str) -> str | None:
    """Return the region that the assembly of a start opens, as in messages; None of other code."""
    first, _, rest = code.partition("\n")
    comment = first.removeprefix(CLOCK_MARK).strip()
    if not first.startswith(CLOCK_MARK) or not comment or STORE_MARK in rest:
        return None
    if comment == HOST_NAMED:
        return "that is named on the host"
    return repr(json.loads(comment.partition(" ")[2]))


def store(
    spec: Spec, tag: int, start: str, end: str, payload: str = "0", where: str | None = None
) -> str:
    """Return the text that stores a record whose words are in registers, and counts it.

    ``where`` is a register: the record is stored and counted only where it is not 0.
    """
    return _STORE.format(
        where=_where(where),
        index=_index(spec, None, where=where is not None),
        store=_words(spec, tag=f"{tag:#x}", start=start, end=end, payload=payload),
        count=_count(None, where=where is not None) + _published(spec),
    )


def _record(spec: Spec, record: RecordCode, names: list[str]) -> Asm:
    wanted = {"tag": record.tag is None, "where": record.where, "index": record.index}
    names = [name for name in [*names, "where", "index"] if wanted.get(name, True)]
    operand = {name: f"${i}" for i, name in enumerate(names, 1)}
    code = _RECORD.format(
        clock=CLOCK_READ[spec.clock],
        comment=record.comment,
        where=_where(operand.get("where")),
        index=_index(spec, operand.get("index"), record.where),
        store=_words(
            spec,
            tag=operand.get("tag", f"{record.tag:#x}" if record.tag is not None else ""),
            start=operand.get("start", "$0"),
            end="$0",
            payload=operand["payload"],
        ),
        count=_count(operand.get("index"), record.where) + _published(spec),
    )
    word = _clock_word(spec)
    return Asm(code, ",".join([f"=&{word}", *(word if n == "start" else "r" for n in names)]))


def _where(register: str | None) -> str:
    return "" if register is None else f"setp.ne.u32 w, {register}, 0;\n"


def _clock_word(spec: Spec) -> str:
    """Return the constraint of a clock word."""
    return "l" if spec.clock.bits > abi.WORD_BITS else "r"


def _words(spec: Spec, *, tag: str, start: str, end: str, payload: str) -> str:
    """Return code that stores a record's words at ``n``, if ``p`` holds."""
    address = "mov.b64 a, {n, ikp_high};"
    if spec.clock.bits == abi.WORD_BITS:
        return f"{address}\n@p st.global.v4.b32 [a], {{{tag}, {start}, {end}, {payload}}};"
    rest = abi.field_offsets(abi.WIDE_RECORD)["tag"]
    return f"""{address}
@p st.global.v2.b64 [a], {{{start}, {end}}};
@p st.global.v2.b32 [a+{rest}], {{{tag}, {payload}}};"""


def _index(spec: Spec, given: str | None, where: bool) -> str:
    """Return code that makes ``n`` the record's offset in the slot, ``p`` whether to store it."""
    also = (".and", ", w") if where else ("", "")
    if spec.overflow.wraps:
        bound = f"setp.ne{also[0]}.u32 p, ikp_lim, 0{also[1]};"
        return f"{bound}\nand.b32 n, ikp_cur, ikp_lim;\nshl.b32 n, n, {shift(spec)};"
    at = given or "ikp_cur"
    return f"setp.lt{also[0]}.u32 p, {at}, ikp_lim{also[1]};\nshl.b32 n, {at}, {shift(spec)};"


def _count(given: str | None, where: bool) -> str:
    """Return code that counts the record: with an index, one more than the largest so far."""
    guard = "@w " if where else ""
    if given is None:
        return f"{guard}add.u32 ikp_cur, ikp_cur, 1;"
    # An index of -1 counts as the largest there is, not as none.
    largest = f"add.u32 n, {given}, 1;\nmax.u32 n, n, {given};"
    return f"{largest}\n{guard}max.u32 ikp_cur, ikp_cur, n;"


def _published(spec: Spec) -> str:
    """Return code that publishes the count of a stream, and that the range opened last is over."""
    return _COUNT if spec.overflow is OverflowMode.STREAM else ""


def shift(spec: Spec) -> int:
    """Return by how many bits an index is shifted to become an offset in a slot."""
    return spec.clock.record.itemsize.bit_length() - 1


_STORE = """{{
.reg .pred p, w; .reg .u32 n; .reg .u64 a;
{where}{index}
add.u32 n, n, ikp_base;
{store}
{count}
}}"""

PUBLISHED = abi.field_offsets(abi.SLOT_HEADER)["attempted"] - abi.SLOT_HEADER_BYTES
"""The offset of the published words from the slot's first record: one aligned store of 16 bytes."""

_COUNT = f"""
setp.ne.u32 p, ikp_lim, 0;
mov.b64 a, {{ikp_base, ikp_high}};
@p st.volatile.global.v2.b32 [a+{PUBLISHED}], {{ikp_cur, 0}};"""

_OPENED = f"""
{{{{
.reg .pred p; .reg .u32 l, h; .reg .u64 a;
setp.ne.u32 p, ikp_lim, 0;
mov.b64 a, {{{{ikp_base, ikp_high}}}};
{{halves}}
@p st.volatile.global.v4.b32 [a+{PUBLISHED}], {{{{ikp_cur, {{tag}}, l, h}}}};
}}}}"""

_RECORD = f"""{CLOCK_MARK}
{{clock}}
{STORE_MARK} {{comment}}
{_STORE}
{END_MARK}"""

_ROLE = f"""{ROLE_MARK} {{comment}}
{{{{
.reg .pred p; .reg .u32 slot; .reg .u64 a;
setp.ne.u32 p, ikp_lim, 0;
{SLOT_ADDRESS}
mov.b64 a, {{{{slot, ikp_high}}}};
@p st.global.b32 [a+{{at}}], {{role}};
}}}}
{END_MARK}"""
