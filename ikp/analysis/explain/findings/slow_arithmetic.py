"""Findings on arithmetic by the wrong unit: ``no-tensor-cores`` and ``slow-arithmetic``.

Products of matrices as FP32 multiply-adds; double precision, divisions and transcendental functions
in numbers that make their units a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import CountedWork, RangeWork, counted_work
from ikp.analysis.explain.places import where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

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
_BOUND: Final = 4.0
"""How many times as long as at the full rate slow instructions may take: they wait for each other,
and come with others that convert and combine."""
_PER_DIVISION: Final = 10.0
"""Instructions of a division that rounds correctly: an estimate, four steps, a test, a branch."""
_LIGHT: Final = 2.0
"""Loads of shared memory for each sum, above which it is no product of tiles in registers."""


def slow_arithmetic(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on arithmetic that a faster unit could do."""
    work = counted_work(launch)
    if work is None:
        return
    yield from _no_tensor_cores(launch, work)
    yield from _double(launch, work)
    yield from _special(launch, work)


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
        confidence="likely" if halves or share >= _SURE else "possible",
        rationale="counted: multiply-adds that sum products of two registers into a third, in code "
        "with no tensor-core instruction; they need "
        f"{100 * share:.0f} % of the launch at the full rate. Refuted if the sums are no product "
        "of matrices, or need all bits of FP32.",
        where=where_of(launch, some),
        suggestion="tensor cores: tl.dot of 16-bit operands, or with input_precision='tf32' (or "
        "'tf32x3', which keeps nearly all bits) in place of 'ieee'; wmma or CUTLASS in CUDA C++",
    )


_HALVES: Final = ("load.global.2", "load.shared.2")


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
    share = max(work.ns(cycles) / launch.duration, count / max(work.total, 1.0))
    if share < _SLOW or not count:
        return
    saved = min(1 - nearest(launch, ("FP64", "XU", "issue", "integer", "FMA")), _BOUND * share)
    if not enough(launch, saved * launch.duration):
        return
    some = sorted(work.ranges, key=lambda one: -one.issued.get("fp64", 0.0))
    mixed = converts >= _FEW * count
    yield finding(
        launch,
        "slow-arithmetic",
        title=f"{count:,.0f} instructions are in double precision"
        + (", of numbers that are converted from single and back" if mixed else ""),
        number=Number("their time at the full rate, or share of instructions", share, "share"),
        at_stake=saved * launch.duration,
        without="with the same in single precision",
        confidence="likely" if mixed and share >= _SURE / 2 else "possible",
        rationale=f"counted: FP64 instructions, with {converts:,.0f} conversions; "
        f"at the full rate they need {100 * work.ns(cycles) / launch.duration:.0f} % of the "
        "launch. Refuted if the results need double precision.",
        where=where_of(launch, [one for one in some[:3] if one.issued.get("fp64")]),
        suggestion="write literals as 1.0f, call tanhf, expf and so on: one double operand makes "
        "an expression double",
    )


_FEW: Final = 0.02


def _special(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on divisions and transcendental functions."""
    divisions = work.issued.get("divide", 0.0)
    xu = work.ns(work.cycles("xu")) / launch.duration
    issue = work.ns(divisions * _PER_DIVISION / 4) / launch.duration
    share = max(xu, issue)
    if share < (_SURE if xu >= issue else _SURE / 2):
        return
    gone = (work.issued.get("xu", 0.0) + divisions * _PER_DIVISION) / max(work.total, 1.0)
    saved = min(1 - nearest(launch, ("XU", "FMA", "integer"), gone), _BOUND * share)
    if not enough(launch, saved * launch.duration):
        return
    unit = "divide" if issue >= xu else "xu"
    some = sorted(work.ranges, key=lambda one: -one.issued.get(unit, 0.0))
    yield finding(
        launch,
        "slow-arithmetic",
        title=f"{divisions:,.0f} divisions and {work.issued.get('xu', 0.0):,.0f} transcendental "
        f"instructions need {100 * share:.0f} % of the launch at the full rate",
        number=Number("their time at the full rate, of the launch", share, "share"),
        at_stake=saved * launch.duration,
        without="with none of them",
        confidence="possible",
        rationale="counted: MUFU (a quarter of a warp in four cycles), and divisions that round "
        "correctly. Refuted if the work needs each of them.",
        where=where_of(launch, [one for one in some[:3] if one.issued.get(unit)]),
        suggestion="multiply by a reciprocal that is calculated once, __fdividef or -use_fast_math;"
        " exp2 with a scaled argument in place of exp; a polynomial for some of them",
    )
