"""PTX of totals: ticks and counts of each region are summed in registers, and stored by ``finish``.

A range that ends adds its ticks and counts itself; an instant counts itself. Nothing is stored
before ``finish``: a pair of verbs is two clock reads and some integer arithmetic. Each counter is a
set of registers at function scope, named after its region. So nothing is threaded through the DSL's
values, and no bank of them can be too small::

    ikp_sum_<region>     ranges: their ticks, 64 bits
    ikp_count_<region>   ranges: how many
    ikp_times_<region>   instants: how many

Which counters a kernel has is known when all of it is compiled or traced. Only then can ``init``
declare them and ``finish`` write them: Triton's pass ``entry`` does so in the text of its PTX, the
adapter of CuTe in the operations that it has traced.

Ticks of one range are 32 bits, modulo 2**32, as in a record; their sum has 64.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ikp.core import abi
from ikp.core.abi import Kind, PayloadType
from ikp.core.segment import Spec
from ikp.targets.ptx import CLOCK_MARK, CLOCK_READ, END_MARK, STORE_MARK, Asm, store

_COUNT = {Kind.RANGE: "ikp_count", Kind.INSTANT: "ikp_times"}
_USED = re.compile(r"\b(ikp_count|ikp_times)_(\d+)\b")


@dataclass(frozen=True, slots=True, order=True)
class Counter:
    """A counter of a warp: of the ranges of a region, or of its instants."""

    kind: Kind
    region: int

    @property
    def count(self) -> str:
        """The register with the number of ranges, or of instants."""
        return f"{_COUNT[self.kind]}_{self.region}"

    @property
    def sum(self) -> str:
        """The register with the ticks of the ranges."""
        return f"ikp_sum_{self.region}"

    @property
    def tag(self) -> int:
        """The tag of the record that ``finish`` writes."""
        return abi.tag(abi.TOTALS[self.kind], PayloadType.NONE, self.region)


def end(spec: Spec, counter: Counter, comment: str, where: bool = False) -> Asm:
    """Add one range to its region's total. Operands: start word, [where]."""
    guard, test = _where(where, "$2")
    code = f"""{CLOCK_MARK}
{CLOCK_READ[spec.clock]}
{STORE_MARK} {comment}
{{
.reg .pred w; .reg .u32 t;
{test}sub.u32 t, $0, $1;
{guard}mad.wide.u32 {counter.sum}, t, 1, {counter.sum};
{guard}add.u32 {counter.count}, {counter.count}, 1;
}}
{END_MARK}"""
    return Asm(code, "=&r,r,r" if where else "=&r,r")


def instant(counter: Counter, comment: str, where: bool = False) -> Asm:
    """Count one instant; no clock is read. Operands: [where]."""
    guard, test = _where(where, "$1")
    code = f"""{STORE_MARK} {comment}
{{
.reg .pred w;
{test}{guard}add.u32 {counter.count}, {counter.count}, 1;
}}
{END_MARK}
mov.u32 $0, 0;"""
    return Asm(code, "=r,r" if where else "=r")


def _where(where: bool, operand: str) -> tuple[str, str]:
    return ("@w ", f"setp.ne.u32 w, {operand}, 0;\n") if where else ("", "")


def used(text: str) -> tuple[Counter, ...]:
    """Return the counters that occur in PTX."""
    kinds = {name: kind for kind, name in _COUNT.items()}
    found = {Counter(kinds[name], int(region)) for name, region in _USED.findall(text)}
    return tuple(sorted(found))


def declarations(counters: Iterable[Counter]) -> list[str]:
    """Return the lines that declare counters and set them to 0, for the scope of the function."""
    lines = []
    for counter in counters:
        lines.append(f".reg .u32 {counter.count}; mov.u32 {counter.count}, 0;")
        if counter.kind is Kind.RANGE:
            lines.append(f".reg .u64 {counter.sum}; mov.u64 {counter.sum}, 0;")
    return lines


def records(spec: Spec, counters: Iterable[Counter]) -> str:
    """Return the part of ``finish`` that writes the totals, one record each, as far as they fit.

    A region that the warp never entered takes no record. Counters that are written start anew, so
    that a second ``finish`` adds to the first.
    """
    return "\n".join(_record(spec, counter) for counter in counters)


def _record(spec: Spec, counter: Counter) -> str:
    def stored(low: str, high: str) -> str:
        return store(spec, counter.tag, low, high, counter.count, where=counter.count)

    if counter.kind is Kind.INSTANT:
        return f"{stored('0', '0')}\nmov.u32 {counter.count}, 0;"
    return f"""{{
.reg .u32 low, high;
mov.b64 {{low, high}}, {counter.sum};
{stored("low", "high")}
mov.u32 {counter.count}, 0; mov.u64 {counter.sum}, 0;
}}"""
