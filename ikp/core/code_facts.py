"""What the machine code of a kernel's ranges holds, in short: kept in the trace that it recorded.

A string under ``FACTS`` + the launch's label in the trace's provenance, JSON of some 60 bytes a
range. Who puts records into machine code, or inspects it, writes it; who explains traces reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

FACTS: Final = "ranges of "
NO_FACTS: Final = "no ranges of "
"""Of a label: why nothing is said of its code, where that went wrong."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RangeFacts:
    """What one execution of a range holds, for one warp.

    ``activity`` is a value of ``ikp.analysis.explain.activity.Activity``, or "" where the code
    doesn't say. ``flop`` and ``bytes`` are None where that is not known: the range's copies differ,
    hold loops, or instructions that don't say how much they do. So is ``shared``: the cycles that
    shared memory needs for the warp's accesses, if no two lanes meet in a bank; and ``issue``: the
    cycles that a scheduler needs to issue its instructions. ``lane_bytes`` is the width of the
    narrowest of several loads from global memory that are under way together, for each lane.
    ``awaits`` names other ranges whose loads this one waits for.
    """

    activity: str
    flop: int | None = None
    bytes: int | None = None
    shared: int | None = None
    issue: int | None = None
    lane_bytes: int | None = None
    awaits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """What is known of one kernel's code."""

    chip: str = ""  # "sm_90a"
    registers: int | None = None  # of a thread, as it ran
    shared: int | None = None  # bytes of a block
    all_products: bool = False  # whether each product of the kernel is in a range that says its
    ranges: Mapping[str, RangeFacts] = field(default_factory=dict)  # flop, once
    kernels: int = 1  # that have these ranges: of several, which was launched is not known
    plain_registers: int | None = None  # of a thread of the plain kernel, where a copy of it ran
    lost: tuple[str, ...] = ()  # which ranges don't hold all that they are about, in words

    def text(self) -> str:
        """Return it as it stands in a trace."""
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
        }
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def read_facts(provenance: Mapping[str, str], label: str) -> CodeFacts | None:
    """Return what a trace says of a label's code; None where it says nothing that can be read."""
    return parse_facts(provenance.get(f"{FACTS}{label}", ""))


def parse_facts(text: str) -> CodeFacts | None:
    """Return what :meth:`CodeFacts.text` returned; None of anything else, and of later versions."""
    try:
        said = json.loads(text)
        return _parsed(said) if said["version"] == _VERSION else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _parsed(said: dict[str, Any]) -> CodeFacts:
    ranges = {str(name): _range(*each) for name, each in said["ranges"].items()}
    return CodeFacts(
        str(said["chip"]),
        _count(said["registers"]),
        _count(said["shared"]),
        said["all_products"] is True,
        ranges,
        int(said.get("kernels", 1)),
        _count(said.get("plain_registers")),
        tuple(map(str, said.get("lost", ()))),
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


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
