"""Findings on instructions that serve no result, or that fewer could do, such as ``unfused-sums``
and ``checks``: a table of kinds.

Each kind is counted in the machine code, times executions. At stake is the time of the code with
these instructions, by the part of it that they issue, below the roofs that the change leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ikp.analysis.explain.counted_work import CountedWork, RangeWork, counted_work
from ikp.analysis.explain.places import self_time, short_line, where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.extra_work import ExtraWork

_PART: Final = 0.1
"""Part of a range's instructions from which on extra ones are its cause."""
_UNITS: Final = ("issue", "integer", "FMA", "XU", "FP64", "L1")
"""Roofs that fewer instructions move away."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of extra work: the id of its finding, and its words."""

    name: str
    title: str  # with {line}, {each} and {share}
    without: str
    because: str
    refuted: str
    suggestion: str
    gone: float = 1.0  # part of the counted instructions that the change saves
    least: float = _PART
    of: str = ""  # the units that take the time, by how their names begin; "": all
    times: float = 1.0  # as many others that these instructions hold up, beside themselves


def extra_instructions(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on extra instructions, one of each kind."""
    work = counted_work(launch)
    if work is None:
        return
    for kind, words in _KINDS.items():
        yield from _found(launch, work, kind, words)


def extra_of(work: CountedWork, kind: str) -> list[tuple[RangeWork, ExtraWork]]:
    """Return the ranges with extra work of a kind, those of most of it first."""
    some = [(one, each) for one in work.ranges if (each := one.facts.extra.get(kind))]
    return sorted(some, key=lambda pair: -pair[0].executions * pair[1].count)


def _found(launch: Prepared, work: CountedWork, kind: str, words: _Kind) -> Iterator[Finding]:
    some = extra_of(work, kind)
    if not some:
        return
    count = sum(one.executions * each.count for one, each in some)
    parts = sum(one.executions * each.parts for one, each in some)
    share = min(count / max(_weighed(work), 1.0), 1.0)
    time = words.gone * sum(_time(launch, work, one, each, words) for one, each in some)
    saved = min(time, 1 - nearest(launch, _UNITS), 1 - nearest(launch, (), words.gone * share))
    if max(share, time / words.times) < words.least or not enough(launch, saved * launch.duration):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    said = {"line": place, "each": f"{count / max(parts, 1e-9):.0f}"}
    said["share"] = f"{100 * share:.0f} %"
    yield finding(
        launch,
        words.name,
        title=words.title.format(**said),
        number=Number("such instructions, of all", share, "share"),
        at_stake=saved * launch.duration,
        without=words.without,
        confidence="likely",
        rationale=f"counted: {words.because}, times executions. Refuted if {words.refuted}.",
        where=where_of(launch, [one for one, _ in some], [each.line for _, each in some]),
        suggestion=words.suggestion,
    )


def _weighed(work: CountedWork) -> float:
    """Return how many instructions the launch issues, loops without known trips as in ``extra``."""
    return sum(one.executions * sum(one.facts.serves.values()) for one in work.ranges)


def _time(
    launch: Prepared, work: CountedWork, one: RangeWork, each: ExtraWork, words: _Kind
) -> float:
    """Return the part of the warps' time that a range's extra instructions take by their number."""
    whole = sum(one.facts.serves.values())
    if words.of:
        some = [count for unit, count in one.issued.items() if unit.startswith(words.of)]
        whole = sum(some) / max(one.executions, 1.0)
    part = min(words.times * each.count / max(whole, each.count, 1e-9), 1.0)
    took = self_time(launch, one, work.kernel)
    if words.times > 1 and one.name in launch.names:  # with the waits inside, that it holds up
        took = max(took, float(launch.took_by_region[launch.names.index(one.name)]))
    return part * took / max(launch.warp_time, 1)


_ENDS_A_BLOCK: Final = 5.0
"""A check ends a block of code: a compiler makes no load ahead of it, and unrolls no loop."""
_ALL_OF_IT: Final = 3.0
"""Loads, addresses and conditions come with arithmetic that all lanes do alike."""
_KINDS: Final = {
    "unfused": _Kind(
        "unfused-sums",
        "{line} multiplies and adds in two instructions: {share} of all are sums of a product that "
        "nothing else uses, where one multiply-add makes both",
        "with multiply-adds",
        "additions of a product that no other instruction reads",
        "results must be rounded between product and sum",
        "let the compiler fuse: no -fmad=false, --fmad=false or __fmul_rn and __fadd_rn; in Triton "
        "enable_fp_fusion=True, or tl.fma(a, b, c)",
    ),
    "scaled": _Kind(
        "scaled-operands",
        "{line} multiplies the operands of products by a factor that no iteration changes: with "
        "conversions for it {share} of all instructions",
        "with the factor outside of the loop",
        "multiplications of loaded operands by a number from outside of the loop",
        "rounding differs too much with the factor on the sums",
        "multiply the sums by the factor once, behind the loop, or the operand that stays; then "
        "operands go to the products as they are loaded",
        least=0.05,
    ),
    "ones": _Kind(
        "products-with-ones",
        "{line} multiplies by a matrix of ones to sum up: products of tensor cores that additions "
        "make as well",
        "with sums by additions",
        "products one of whose operands is set to ones",
        "tensor cores are idle, and additions take longer",
        "sum with tl.sum (additions and shuffles), or take the sum from a product that is made "
        "anyway, by a column of ones in its operand",
        least=0.0,
        of="tensor",
    ),
    "checks": _Kind(
        "checks",
        "{line} checks its numbers as it goes: jumps to a failed assertion or a print, with what "
        "only these need, are {share} of all instructions",
        "without the checks",
        "jumps to calls of __assertfail or vprintf, and instructions whose results nothing else "
        "reads",
        "the checks are needed in production",
        "compile without assertions (-DNDEBUG; TRITON_DEBUG unset, debug=False), and without "
        "printf; check once, ahead of the loop, or in a kernel of its own",
        least=0.04,
        times=_ENDS_A_BLOCK,
    ),
    "random": _Kind(
        "unused-random-numbers",
        "{line} makes random numbers of which most are thrown away: {each} instructions for each "
        "that is used, {share} of all, where Philox makes four at a time",
        "with all four words of each evaluation used",
        "the rounds of Philox, and how many of their results other instructions read",
        "elements that share an evaluation can't be together",
        "use all four words: tl.rand4x or tl.randint4x for four blocks of elements, curand4 or "
        "curand_uniform4 in CUDA C++; or fewer rounds (n_rounds=)",
        gone=0.7,
    ),
    "unpacked": _Kind(
        "unpacked-numbers",
        "{line} takes numbers apart bit by bit: {each} integer instructions for each number, "
        "{share} of all instructions",
        "with conversions of the hardware",
        "integer instructions between a load and the arithmetic that takes their result as a "
        "number",
        "no instruction converts this format",
        "convert by the hardware's instructions: .to(tl.float8e4nv, bitcast=True).to(tl.float16), "
        "__half2float, __nv_cvt_fp8x2_to_halfraw2; __dp4a or tensor cores for bytes; a table of "
        "few entries, or one PRMT for several numbers, for other formats",
        gone=0.9,
        least=0.2,
    ),
    "private": _Kind(
        "private-staging",
        "{line} takes numbers through shared memory, and each thread loads only what it stored "
        "itself: {share} of all instructions",
        "with these numbers in registers",
        "addresses of all stores to shared memory and of all loads from there, thread by thread",
        "another thread loads them in iterations that were not looked at",
        "keep the numbers in registers, and leave the barrier out; shared memory pays where other "
        "threads load them",
        least=0.03,
    ),
    "alike": _Kind(
        "alike-lanes",
        "{line} makes all lanes of a warp calculate the same numbers: {share} of all instructions, "
        "where each lane could take an element of its own",
        "with the elements spread over the lanes",
        "arithmetic in loops whose operands depend on no thread's number in its warp",
        "each step needs the one before it",
        "let each lane take every 32nd element, and combine the lanes' results behind the loop "
        "(__shfl_xor_sync, __reduce_add_sync, tl.sum)",
        gone=0.9,
        times=_ALL_OF_IT,
    ),
}
