"""Facts of a kernel's code, range by range: activity, instruction mix; kept as JSON in a trace.

A string under ``FACTS`` + the launch's label in the trace's provenance, some 400 bytes a range.
Instrumentation of machine code and ``ikp inspect`` write it; ``ikp explain`` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ikp.core.work_facts import AccessFacts, LoopFacts, Mix, mix_of_json, size

FACTS: Final = "ranges of "
NO_FACTS: Final = "no ranges of "
"""Before a label: why the trace has no facts of its code, where finding them failed."""
PARAMETERS: Final = "parameters of "
"""Before a label: the values of its first recorded launch's parameters, JSON: offset -> hex."""
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
    under a condition, or in a loop, that their data decide.
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
    bulk_bytes: float | None = None  # that bulk copies were announced with, of one execution


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
                }
                for name, each in self.ranges.items()
                if each.mix
            },
            "local_bytes": self.local_bytes,
            "spills": self.spills,
            "static_shared": self.static_shared,
            "register_limit": self.register_limit,
            "kernel": self.kernel,
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
        products=None if said["products"] is None else size(said["products"]),
        polls=str(said["polls"]),
        bulk_bytes=None if said["bulk_bytes"] is None else size(said["bulk_bytes"]),
    )


def _loop(line: object, depth: int, mix: Mapping[str, int]) -> LoopFacts:
    return LoopFacts(str(line), int(depth), {str(unit): int(n) for unit, n in mix.items()})


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
