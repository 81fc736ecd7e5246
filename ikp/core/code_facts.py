"""Facts of a kernel's code, range by range: activity, instruction counts, memory accesses, excess;
as JSON.

A string under ``FACTS`` + the launch's label in the trace's provenance, some 400 bytes a range. A
session on a GPU writes it as it ends; ``ikp explain`` reads it. Units are those of
``ikp.sass.disassembly.opcodes``: ``"fma"``, ``"load.global.16"``, and others. Instruction counts,
accesses and lines are JSON lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ikp.core.excess_facts import NO_EXCESS, ExcessFacts, ExtraWork, extra_of_json, size

Mix = Mapping[str, tuple[float, float, float]]
"""Unit -> instructions in one execution of a range, for one warp: those that are surely executed,
with the trips of loops that the code says; those that are at most, under conditions that are not
known; and those in loops of unknown trips, of one iteration."""


_ACCESS = re.compile(r"(load|store|atomic|copy)\.(global|shared|local)\.\d{1,3}")


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """A memory access of a range: what one request of a warp needs, by its lanes' addresses.

    ``cost`` counts 32-byte sectors of global memory, or cycles of shared memory; ``least`` is what
    the same bytes need where lanes are adjacent. Both are None where addresses are not known, as
    behind a look-up. ``depends`` has a letter for each thing that the address depends on: ``l``
    lanes, ``w`` the warp, ``b`` the block, ``d`` loaded data, ``i`` the iteration of the innermost
    loop around, ``p`` a parameter whose value is assumed; ``h``: not the device's memory;
    ``o``: a loop around that one makes it again at the same addresses; ``s``: it loads what the
    same block has stored; ``m``: addresses of lanes were recorded in a further run; ``v``: and
    differ by another distance from lane to lane.
    """

    unit: str
    count: float  # requests in one execution of the range
    line: str  # "matmul.py:93"
    cost: float | None = None
    least: float | None = None
    addresses: int | None = None  # distinct ones of a request
    depends: str = ""
    in_loop: bool = False
    blocks_share: float | None = None  # of sectors: those that an earlier block asked for, too
    reused_share: float | None = None  # the same, of 16 blocks that divide the grid
    lanes: float = 32.0  # that are active in a request
    span: int | None = None  # bytes from the lowest to the highest address of all that is looked at
    keys: tuple[int, ...] = ()  # each of some addresses, equal for equal ones; not of unknown ones
    together: float | None = None  # sectors of a request that no other of its line and range asks
    align: int | None = None  # of global memory: what its first addresses are a multiple of
    threads: float | None = None  # part of the block's threads that execute it, where known
    own: float | None = None  # its distinct addresses in a block, for each thread, at most
    use: str = ""  # of what a load brings: "compared.8", "narrowed.4", with the bytes of a number

    def to_json(self) -> list[Any]:
        """Return it as a list."""
        return [
            *(self.unit, self.count, self.line, self.cost, self.least, self.addresses),
            *(self.depends, self.in_loop, self.blocks_share, self.reused_share, self.lanes),
            self.span,
            list(self.keys),
            *(self.together, self.align, self.threads, self.own, self.use),
        ]

    @classmethod
    def of_json(cls, said: list[Any]) -> AccessFacts:
        """Return it from that list.

        Raises:
            ValueError, TypeError: it is none.
        """
        unit, count, line, cost, least, addresses, depends, in_loop, *more = said
        share, reused, lanes, span, keys, *last = more
        together, align, threads, own, use = [*last, None, None, None, None, None][:5]
        if not _ACCESS.fullmatch(str(unit)):
            raise ValueError(f"{unit!r} is no access")
        return cls(
            str(unit),
            size(count),
            str(line),
            _number(cost),
            _number(least),
            None if addresses is None else int(size(addresses)),
            str(depends),
            in_loop is True,
            _number(share),
            _number(reused),
            size(lanes),
            None if span is None else int(size(span)),
            tuple(map(int, keys)),
            _number(together),
            None if align is None else int(size(align)),
            _number(threads),
            _number(own),
            str(use or ""),
        )


@dataclass(frozen=True, slots=True)
class LineFacts:
    """A source line of a range: its instructions in one execution, and what is slow in it."""

    line: str  # "/path/matmul.py:93"
    count: float
    slow: Mapping[str, float] = field(default_factory=dict)  # "power" -> how many
    looped: float = 0.0  # instructions in loops of unknown trips, of one iteration of these
    parts: Mapping[str, float] = field(default_factory=dict)  # what they do: "compare" -> how many

    def to_json(self) -> list[Any]:
        """Return it as a list."""
        return [self.line, self.count, dict(self.slow), self.looped, dict(self.parts)]

    @classmethod
    def of_json(cls, said: list[Any]) -> LineFacts:
        """Return it from that list; ValueError and TypeError where it is none."""
        line, count, slow, *more = said
        looped, parts = (*more, *(0.0, {})[len(more) :])[:2]
        functions, kinds = (
            {str(name): size(n) for name, n in some.items()} for some in (slow, parts)
        )
        return cls(str(line), size(count), functions, size(looped), kinds)


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """A loop of the kernel, or the code in none: its static instruction mix, inner loops apart."""

    line: str  # "" of the code in no loop
    depth: int  # 0 of the code in no loop
    mix: Mapping[str, int] = field(default_factory=dict)


def mix_of_json(said: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Return a mix from its JSON object; ValueError and TypeError where it is none."""
    found = {}
    for unit, (once, maybe, looped) in said.items():
        if unit.startswith(("load.", "store.", "atomic.")) and not _ACCESS.fullmatch(unit):
            raise ValueError(f"{unit!r} is no access")
        found[str(unit)] = size(once), size(maybe), size(looped)
    return found


def _number(value: Any) -> float | None:
    return None if value is None else size(value)


RECORDED: Final = "m"
"""The letter of a cost that address probes recorded."""
SCATTERED: Final = "v"
"""The letter of such accesses whose lanes are at no equal distances: data place each lane."""
FACTS: Final = "ranges of "
NO_FACTS: Final = "no ranges of "
"""Before a label: why the trace has no facts of its code, where finding them failed."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RangeFacts:
    """The work in one execution of a range, for one warp.

    ``activity`` is a value of ``ikp.analysis.explain.activity.Activity``, or "" where the code
    doesn't say. ``flop`` and ``bytes`` are None where they are not known: the range's copies
    differ, hold loops, or instructions that don't say how much they do. ``shared`` and ``issue``
    may be None for the same reasons. ``shared`` is the cycles that shared memory needs for the
    warp's accesses, without bank conflicts; ``issue``, the cycles that a scheduler needs to issue
    its instructions. ``lane_bytes`` is the width of the narrowest of several loads from global
    memory that are under way together, for each lane. ``awaits`` names other ranges whose loads
    this one waits for. ``mix`` counts instructions by unit, ``apart`` those that lanes run apart:
    under a condition, or in a loop, that their data decide. Where trips of loops are not known, it
    counts what these loops hold.
    """

    activity: str
    flop: int | None = None
    bytes: int | None = None
    shared: int | None = None
    issue: int | None = None
    lane_bytes: int | None = None
    awaits: tuple[str, ...] = ()
    mix: Mix = field(default_factory=dict)
    line: str = ""  # "/path/matmul.py:93"
    accesses: tuple[AccessFacts, ...] = ()
    apart: int = 0
    products: float | None = None  # operations of tensor cores, where ``flop`` is not exact, too
    sums: float = 0.0  # FP32 multiply-adds onto a register of their own
    polls: str = ""  # the line of a loop that reads memory until another thread changes it
    chases: str = ""  # the line, or "no line", of a load whose address its last result decides
    constants: float = 0.0  # loads of constants at addresses that differ from lane to lane
    bulk_bytes: float | None = None  # that bulk copies were announced with, of one execution
    lines: tuple[LineFacts, ...] = ()  # of most instructions
    needless: float = 0.0  # barriers of the block that order no accesses
    excess: ExcessFacts = NO_EXCESS  # what it does more often, or wider, than its results need
    extra: Mapping[str, ExtraWork] = field(default_factory=dict)  # by kind
    serves: Mapping[str, float] = field(default_factory=dict)  # instructions by what they serve


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """The facts of one kernel's code: registers, memory, loops, and those of its ranges."""

    chip: str = ""  # "sm_90a"
    registers: int | None = None  # of a thread, as it ran
    shared: int | None = None  # bytes of a block
    all_products: bool = False  # whether each product of the kernel is in one range with a flop
    ranges: Mapping[str, RangeFacts] = field(default_factory=dict)  # by name
    kernels: int = 1  # that have these ranges: of several, which was launched is not known
    plain_registers: int | None = None  # of a thread of the plain kernel, where a copy of it ran
    lost: tuple[str, ...] = ()  # which ranges don't hold all that they are about, in words
    local_bytes: int | None = None  # of a thread's local memory, of the plain kernel: its stack
    spills: int | None = None  # instructions of the plain kernel that access it
    static_shared: int | None = None  # bytes of a block that the plain kernel's code declares
    register_limit: int | None = None  # that the compiler was given, where below the chip's
    loops: tuple[LoopFacts, ...] = ()  # of the kernel, with the code in none
    kernel: str = ""  # the name among ``ranges`` of the code that is in no other range
    ahead: float | None = None  # iterations whose copies are under way as a loop waits for its own
    halo: float = 0.0  # part of what a block loads in no loop that neighbouring blocks load, too

    def text(self) -> str:
        """Return the facts as the JSON that a trace's provenance holds."""
        ranges = {
            name: [
                *(each.activity, each.flop, each.bytes, each.shared, each.issue, each.lane_bytes),
                *each.awaits,
            ]
            for name, each in self.ranges.items()
        }
        said = {
            "version": _VERSION,
            "chip": self.chip,
            "registers": self.registers,
            "shared": self.shared,
            "all_products": self.all_products,
            "ranges": ranges,
            "kernels": self.kernels,
            "plain_registers": self.plain_registers,
            "lost": self.lost,
            "work": {
                name: {
                    "mix": each.mix,
                    "line": each.line,
                    "accesses": [one.to_json() for one in each.accesses],
                    "apart": each.apart,
                    "sums": each.sums,
                    "products": each.products,
                    "bulk_bytes": each.bulk_bytes,
                    "polls": each.polls,
                    "chases": each.chases,
                    "constants": each.constants,
                    "lines": [one.to_json() for one in each.lines],
                    "needless": each.needless,
                    "excess": each.excess.to_json(),
                    "extra": {kind: one.to_json() for kind, one in each.extra.items()},
                    "serves": each.serves,
                }
                for name, each in self.ranges.items()
                if each.mix
            },
            "local_bytes": self.local_bytes,
            "spills": self.spills,
            "static_shared": self.static_shared,
            "register_limit": self.register_limit,
            "kernel": self.kernel,
            "ahead": self.ahead,
            "halo": self.halo,
            "loops": [[each.line, each.depth, each.mix] for each in self.loops],
        }
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def read_facts(provenance: Mapping[str, str], label: str) -> CodeFacts | None:
    """Return the facts that a trace has of a label's code; None if it has none that can be read."""
    return parse_facts(provenance.get(f"{FACTS}{label}", ""))


def parse_facts(text: str) -> CodeFacts | None:
    """Parse the text of :meth:`CodeFacts.text`; None for any other text, and for later versions."""
    try:
        said = json.loads(text)
        return _parsed(said) if said["version"] == _VERSION else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _parsed(said: dict[str, Any]) -> CodeFacts:
    ranges = {str(name): _range(*each) for name, each in said["ranges"].items()}
    for name, work in said.get("work", {}).items():
        ranges[name] = _with_work(ranges[name], work)
    return CodeFacts(
        str(said["chip"]),
        _count(said["registers"]),
        _count(said["shared"]),
        said["all_products"] is True,
        ranges,
        int(said.get("kernels", 1)),
        _count(said.get("plain_registers")),
        tuple(map(str, said.get("lost", ()))),
        _count(said.get("local_bytes")),
        _count(said.get("spills")),
        _count(said.get("static_shared")),
        _count(said.get("register_limit")),
        tuple(_loop(*each) for each in said.get("loops", ())),
        str(said.get("kernel", "")),
        _number(said.get("ahead")),
        size(said.get("halo", 0)),
    )


def _range(activity: object, *counts: object) -> RangeFacts:
    flop, size, shared, issue, width, *awaits = counts
    return RangeFacts(
        str(activity),
        _count(flop),
        _count(size),
        _count(shared),
        _count(issue),
        _count(width),
        tuple(map(str, awaits)),
    )


def _with_work(facts: RangeFacts, said: dict[str, Any]) -> RangeFacts:
    return replace(
        facts,
        mix=mix_of_json(said["mix"]),
        line=str(said["line"]),
        accesses=tuple(AccessFacts.of_json(each) for each in said["accesses"]),
        apart=_count(said["apart"]) or 0,
        sums=size(said["sums"]),
        products=_number(said["products"]),
        polls=str(said["polls"]),
        chases=str(said.get("chases", "")),
        constants=size(said.get("constants", 0)),
        bulk_bytes=_number(said["bulk_bytes"]),
        lines=tuple(LineFacts.of_json(each) for each in said.get("lines", ())),
        needless=size(said.get("needless", 0)),
        excess=ExcessFacts.of_json(said.get("excess", {})),
        extra=extra_of_json(said.get("extra", {})),
        serves={str(what): size(count) for what, count in said.get("serves", {}).items()},
    )


def _loop(line: object, depth: int, mix: Mapping[str, int]) -> LoopFacts:
    return LoopFacts(str(line), int(depth), {str(unit): int(n) for unit, n in mix.items()})


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
