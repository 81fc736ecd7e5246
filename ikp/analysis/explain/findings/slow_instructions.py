"""Findings on arithmetic that takes long: ``no-tensor-cores`` and ``slow-arithmetic``.

``no-tensor-cores``: products of matrices by FP32 multiply-adds, which tensor cores could make.
``slow-arithmetic``: double precision; divisions, powers and roots, which compilers expand into many
instructions; MUFU instructions. The machine code says which instructions do so, and how often each
range executes them; what each costs depends on other warps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import CountedWork, RangeWork, if_counted
from ikp.analysis.explain.line_costs import LineCost, line_costs
from ikp.analysis.explain.peaks import ISSUE
from ikp.analysis.explain.places import (
    Hot,
    hot_ranges,
    laid_to,
    short_line,
    where_of,
)
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import IDLE, NEAR, REACHED, nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.code_facts import LineFacts

_SUMS: Final = 0.3
"""Share of sums of products in a range's FP32 instructions, from which on it is a product of
matrices."""
_MANY, _MOSTLY = 64, 0.7
"""Sums of an execution, and their share, that are a product though no operand is in shared memory.
"""
_FMA: Final = 0.15
"""Share of the launch that such sums need at the full rate, from which on they are a finding."""
_SLOW: Final = 0.1
"""The same for slow units."""
_SURE: Final = 0.3
_HALF: Final = 0.5
"""Part of all instructions from which on they are the cause."""
_LIGHT: Final = 2.0
"""Loads of shared memory for each sum, above which it is no product of tiles in registers."""


@if_counted
def slow_arithmetic(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on arithmetic that another unit, or fewer instructions, could do faster."""
    yield from _no_tensor_cores(launch, work)
    doubles = [*_double(launch, work), *_looped_double(launch, work)]
    yield from sorted(doubles, key=lambda one: -one.bound_ns)[:1]
    yield from [*_special(launch, work)] or _looped_functions(launch, work)


def _no_tensor_cores(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    some = [one for one in work.ranges if _multiplies(one)]
    count = sum(one.facts.sums * one.executions for one in some)
    share = work.ns(count / 4) / launch.duration
    saved = 1 - nearest(launch, ("FMA", "issue", "L1", "FP64"))
    if share < _FMA or not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda one: -one.facts.sums * one.executions)
    halves = any(one.facts.mix.get(unit) for one in some for unit in _HALVES)
    yield finding(
        launch,
        "no-tensor-cores",
        title=f"{some[0].name} multiplies matrices by FP32 multiply-adds, not on tensor cores: "
        f"{count:,.0f} instructions",
        number=Number("time of the sums at the full FP32 rate, of the launch", share, "share"),
        at_stake=saved * launch.duration,
        without="with the products on tensor cores",
        confidence="likely" if halves or launch.launch.backend in _DOTS else "possible",
        rationale="counted: multiply-adds that sum products of two registers into a third, in code "
        "with no tensor-core instruction; they need "
        f"{100 * share:.0f} % of the launch at the full rate. Refuted if the sums are no product "
        "of matrices, or need all bits of FP32.",
        where=where_of(launch, some),
        suggestion="tensor cores: tl.dot of 16-bit operands, or with input_precision='tf32' (or "
        "'tf32x3', which keeps nearly all bits) in place of 'ieee'; wmma or CUTLASS in CUDA C++",
    )


_DOTS: Final = ("triton", "gluon")
"""Languages whose products are made on tensor cores, unless a program asks for all bits."""
_HALVES: Final = ("load.global.2", "load.shared.2", "convert")
"""Units of operands that were narrower than FP32, whose products tensor cores have exactly."""


def _multiplies(one: RangeWork) -> bool:
    sums, mix = one.facts.sums, one.facts.mix
    if not sums or any(unit.startswith("tensor") for unit in mix):
        return False
    fma = sum(mix.get("fma", ())) or 1
    shared = sum(sum(n) for unit, n in mix.items() if unit.startswith("load.shared"))
    return (sums >= _SUMS * fma and 0 < shared <= _LIGHT * sums) or (
        sums >= _MANY and sums >= _MOSTLY * fma
    )


def _double(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    count = work.issued.get("fp64", 0.0)
    converts = work.issued.get("convert.64", 0.0)
    cycles = work.cycles("fp64") + work.cycles("convert.64")
    time, part = work.ns(cycles) / launch.duration, count / max(work.total, 1.0)
    share = max(time, part)
    if share < _SLOW or not count:
        return
    left = 1 - nearest(launch, _RELIEVED)
    mixed = converts >= _FEW * count
    lines = _double_lines(launch)
    held = _GONE * sum(one.share for one in lines) if mixed else 0.0
    saved = min(left, max(time, part * share_of(launch, "issue") / REACHED["issue"], held))
    if not enough(launch, saved * launch.duration):
        return
    place = f"{short_line(lines[0].line)} calculates in double precision: " if lines else ""
    yield finding(
        launch,
        "slow-arithmetic",
        title=f"{place}{count:,.0f} instructions are in double precision, {100 * part:.0f} % of all"
        + (_CONVERTED if mixed else ""),
        number=Number("their time at the full rate, or share of instructions", share, "share"),
        at_stake=saved * launch.duration,
        without="with the same in single precision",
        confidence="likely" if mixed else "possible",
        rationale=f"counted: FP64 instructions, with {converts:,.0f} conversions; "
        f"at the full rate they need {100 * work.ns(cycles) / launch.duration:.0f} % of the "
        "launch. Refuted if the results need double precision.",
        where=where_of(launch, _double_ranges(work), [one.line for one in lines]),
        suggestion=_SINGLE,
    )


def _double_lines(launch: Prepared) -> list[LineCost]:
    """Return the lines whose time is double precision for a good part, most of it first."""
    lines = [one for one in line_costs(launch) if one.share_of(_DOUBLE) >= _OF_LINE * one.share > 0]
    return sorted(lines, key=lambda one: -one.share_of(_DOUBLE))


def _double_ranges(work: CountedWork) -> list[RangeWork]:
    """Return the ranges with most instructions in double precision, three at most."""
    some = sorted(work.ranges, key=lambda one: -one.issued.get("fp64", 0.0))
    return [one for one in some[:3] if one.issued.get("fp64")]


_DOUBLE: Final = frozenset(("fp64", "convert.64"))
_OF_LINE: Final = 0.2
"""Part of a line's time that is double precision, from which on the line is there for it: functions
in double precision take their numbers apart by integer instructions."""
_GONE: Final = 0.75
"""Part of such a line's time that goes with it: single precision takes a quarter, about."""
_FEW: Final = 0.02
_RELIEVED: Final = ("FP64", "XU", "issue", "integer", "FMA")
"""Roofs that single precision moves away."""
_CONVERTED: Final = ", of numbers that are converted from single and back"


def _looped_double(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on double precision in loops that nothing counts, by their time."""
    some = [one for one in hot_ranges(launch, work) if one.looped and one.mix.get("fp64")]
    saved = sum(one.share * one.part(_is_double) for one in some)
    saved = min(saved, 1 - nearest(launch, _RELIEVED))
    if saved < _SLOW or not enough(launch, saved * launch.duration):
        return
    first = some[0]
    count, converts = first.mix["fp64"], first.mix.get("convert.64", 0.0)
    wide = any(first.mix.get(unit) for unit in _OF_DOUBLES)
    mixed = converts >= (_MANY_CONVERTED if wide else _FEW) * count
    lines = sorted(first.work.facts.lines, key=lambda line: -line.looped)
    yield finding(
        launch,
        "slow-arithmetic",
        title=f"an iteration in {first.work.name} makes {count:.0f} of its {first.total:.0f} "
        "instructions in double precision" + (_CONVERTED if mixed else ""),
        number=Number("their part of the time of such loops, of the launch", saved, "share"),
        at_stake=saved * launch.duration,
        without="with the same in single precision",
        confidence="likely" if mixed else "possible",
        rationale=f"counted: FP64 instructions of one iteration, with {converts:.0f} conversions, "
        f"by how long they hold a warp up; measured: {100 * first.share:.0f} % of the warps' time "
        "is in this loop. Refuted if the results need double precision.",
        where=where_of(launch, [one.work for one in some], [one.line for one in lines[:1]]),
        suggestion=_SINGLE,
    )


def _is_double(unit: str) -> bool:
    return unit in ("fp64", "convert.64")


_OF_DOUBLES: Final = ("load.global.8", "load.global.16", "store.global.8", "store.global.16")
_MANY_CONVERTED: Final = 0.1
"""Conversions for each such instruction from which on its data is single precision, though it may
be loaded as doubles are."""


_SINGLE: Final = (
    "calculate in single precision: literals as 1.0f, powf, expf, sinf and so on in place of pow, "
    "exp, sin; one double operand makes an expression double"
)


def _special(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on slow functions, or on transcendental instructions, that fill a unit."""
    slow = _slow_lines(work)
    count = sum(slow.instructions.values())
    xu = work.ns(work.cycles("xu")) / launch.duration
    issue = work.ns(count * ISSUE) / launch.duration
    if issue >= _SURE / 2:
        share, gone = issue, count / max(work.total, 1.0)
        what = _counted(slow.functions)
        suggestion = " ".join(REMEDIES[name] for name in REMEDIES if name in slow.functions)
    elif xu >= _SURE:
        share, gone = xu, work.issued.get("xu", 0.0) / max(work.total, 1.0)
        what = f"{work.issued.get('xu', 0.0):,.0f} transcendental instructions"
        suggestion = _TRANSCENDENTAL
    else:
        return
    divides = _is_full(launch) and _divisions(work) >= _DIVIDED
    saving = gone / 2 if divides else gone  # what such lines do beside stays
    left = nearest(launch, ("XU", "FMA", "integer", "FP64"), saving)
    saved = 1 - left if _is_full(launch) else min(1 - left, share)
    first = nearest(launch) > nearest(launch, ("XU", "FMA", "integer", "FP64", "issue"))
    if not enough(launch, saved * launch.duration):
        return
    some = sorted(work.ranges, key=lambda one: -_slow_of(one) if count else -_xu_of(one))
    lines = sorted(slow.instructions, key=lambda line: -slow.instructions[line])
    place = f"{lines[0].rpartition('/')[2]} calculates " if issue >= _SURE / 2 else ""
    yield finding(
        launch,
        "slow-arithmetic",
        title=f"{place}{what}, which need {100 * share:.0f} % of the launch at the full rate"
        + (f": {100 * gone:.0f} % of all instructions" if place else ""),
        number=Number("their time at the full rate, of the launch", share, "share"),
        at_stake=saved * launch.duration,
        without="with none of them",
        confidence="likely"
        if place
        and first
        and (
            (_WASTE & {*slow.functions} and gone >= _MOST and not _waits_for_memory(launch, work))
            or (_REPLACED & {*slow.functions} and gone >= _MOST and _is_full(launch))
            or divides
        )
        else "possible",
        rationale="counted: the instructions of the lines with such functions, which a compiler "
        "expands into tens of instructions each, at one for each scheduler in a cycle. "
        "Refuted if the work needs each of them."
        if place
        else "counted: MUFU, a quarter of a warp in four cycles. Refuted if the work needs each.",
        where=where_of(launch, some[:3], lines),
        suggestion=suggestion,
    )


def _looped_functions(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on slow functions in loops that nothing counts, by their part of the code.

    A warp's arithmetic takes its time, where memory and units are idle.
    """
    some = [one for one in hot_ranges(launch, work) if one.looped and _replaced(one)]
    compute = launch.share_in(launch.regions([Activity.COMPUTE]))
    if not some or nearest(launch) >= IDLE or compute < _HALF:
        return
    time = sum(one.share for one in some)
    part = sum(one.share * one.part_of_lines(_slow(one)) for one in some) / time
    saved = min(_FASTER * part * time, 1 - nearest(launch))
    if part < _PART or not enough(launch, saved * launch.duration):
        return
    lines = sorted((each for one in some for each in _replaced(one)), key=lambda each: -each.looped)
    name = max(_REPLACED & {*lines[0].slow}, key=lambda name: lines[0].slow[name])
    yield finding(
        launch,
        "slow-arithmetic",
        title=f"{lines[0].line.rpartition('/')[2]} calculates {name}s in loops: such lines are "
        f"{100 * part:.0f} % of their time",
        number=Number("lines with slow functions, of the time of their loops", part, "share"),
        at_stake=saved * launch.duration,
        without="with faster ones",
        confidence="likely",
        rationale=f"counted: instructions of lines that calculate {name}s, and of the loops around "
        "them, by how long they hold a warp up; measured: the warps' time is arithmetic, and no "
        "unit is busy. Refuted if nothing faster is as exact.",
        where=where_of(launch, [one.work for one in some], [each.line for each in lines]),
        suggestion=REMEDIES[name],
    )


_FASTER: Final = 0.5
"""Part of the time of such lines that fast functions save: of one kernel, where these were 75 % of
the time, 40 % went with -use_fast_math."""


def _slow(one: Hot) -> list[LineFacts]:
    """Return the lines of a range that calculate slow functions."""
    return [line for line in one.work.facts.lines if line.slow]


def _replaced(one: Hot) -> list[LineFacts]:
    """Return those of them whose functions others can replace."""
    return [line for line in _slow(one) if _REPLACED & {*line.slow}]


_WIDE: Final = "64-bit integer division"
_PART: Final = 0.3
"""Part of the instructions from which on lines with such divisions are the cause."""
_REPLACED: Final = frozenset(("power", _WIDE, "division", "square root"))
"""Functions that others can replace."""
_WASTE: Final = frozenset(("power", _WIDE))
"""Functions that others can replace. Of nine launches with such a finding on divisions and roots,
one was faster without any."""


_MOST: Final = 0.4
"""The same where a launch is at the roof of its instructions: there these are its time."""


_OF_ONE: Final = {"integer division": 20.0, _WIDE: 90.0}
"""Instructions of a division of integers, about."""
_DIVIDED: Final = 0.2
"""Part of all instructions that such divisions alone are, from which on they are the cause where a
launch is at the roof of its instructions: of one kernel of a library that is there, 0.06."""


def _divisions(work: CountedWork) -> float:
    """Return the part of all instructions that divisions of integers alone are."""
    functions = _slow_lines(work).functions
    count = sum(each * functions.get(name, 0.0) for name, each in _OF_ONE.items())
    return count / max(work.total, 1.0)


def _is_full(launch: Prepared) -> bool:
    """Whether instructions are what a launch can't have more of."""
    return share_of(launch, "issue", "integer", "FMA", "XU") >= NEAR


def _waits_for_memory(launch: Prepared, work: CountedWork) -> bool:
    """Whether warps spend most of their time in accesses to memory, and no arithmetic unit is full.

    Then a warp's arithmetic is done while others wait. Of code that does both, memory has its part.
    """
    waits = launch.share_in(launch.regions((Activity.WAIT_MEMORY,)))
    memory = waits + laid_to(launch, work, lambda unit: unit.startswith(_OF_MEMORY))
    return memory >= _HALF and share_of(launch, "issue", "integer", "XU", "FP64", "FMA") < NEAR


_OF_MEMORY: Final = ("load.global", "store.global", "atomic.global")


@dataclass(frozen=True, slots=True)
class _Slow:
    instructions: dict[str, float]  # of all warps, by line
    functions: dict[str, float]


def _slow_lines(work: CountedWork) -> _Slow:
    """Return the instructions of lines with slow functions, and how many of these a launch has."""
    found = _Slow({}, {})
    for one in work.ranges:
        for line in one.facts.lines:
            if line.slow:
                before = found.instructions.get(line.line, 0.0)
                found.instructions[line.line] = before + line.count * one.executions
            for name, count in line.slow.items():
                found.functions[name] = found.functions.get(name, 0.0) + count * one.executions
    return found


def _slow_of(one: RangeWork) -> float:
    return one.executions * sum(line.count for line in one.facts.lines if line.slow)


def _xu_of(one: RangeWork) -> float:
    return one.issued.get("xu", 0.0)


def _counted(functions: dict[str, float]) -> str:
    most = sorted(functions, key=lambda name: -functions[name])[:2]
    return " and ".join(f"{name}s ({functions[name]:,.0f})" for name in most)


_INDICES: Final = (
    "Let the grid's dimensions give the indices, or carry them from one iteration to the next; "
    "divide in 32 bits, or by constants (tl.constexpr, templates); shift and mask by powers of 2."
)
REMEDIES: Final = {
    "power": "Multiply (x * x * x) in place of pow with a small exponent.",
    "64-bit integer division": _INDICES,
    "integer division": _INDICES,
    "division": "Multiply by a reciprocal that is calculated once; __fdividef or -use_fast_math.",
    "square root": "Use rsqrtf, or -use_fast_math.",
}
"""What to do about slow functions, by their names in ``LineFacts.slow``."""
_TRANSCENDENTAL: Final = (
    "exp2 with a scaled argument in place of exp; a polynomial for some of them; -use_fast_math"
)
