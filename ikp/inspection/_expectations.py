"""``check``: whether a range holds the kinds of instructions that its name and lines promise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from ikp.inspection.report import CodeRange, Discrepancy, InstructionGroup
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import IDLE, Work, opcodes, work_of


@dataclass(frozen=True, slots=True)
class _Promise:
    """A kind of work that a word in a range's name, or a call in its lines, promises."""

    broken: str  # words for a range that breaks it: "no store"
    words: frozenset[str]
    calls: re.Pattern[str]
    kept_by: tuple[Work, ...]


def _promise(broken: str, words: str, calls: str, *kept_by: Work) -> _Promise:
    return _Promise(broken, frozenset(words.split()), re.compile(calls), kept_by)


WAIT = _promise(
    "no wait and no barrier",
    "wait waits barrier sync acquire",
    r"(^|\.)(\w*_)?(wait|wait_group|barrier|syncthreads|sync_threads|arrive_and_wait)$",
    Work.WAIT, Work.BARRIER, Work.FENCE, Work.LOAD, Work.ATOMIC,  # polling a flag is waiting, too
)  # fmt: skip
_PROMISES = (
    _promise(
        "no load and no copy",
        "load loads ld copy copies cp fetch prefetch gather tma",
        r"(^(tl|gl|ttgl|language)\.(load|gather)|\.(async_)?load\w*|\.async_copy\w*|\.autovec_copy|"
        r"(^|\.)copy)$",
        Work.COPY, Work.LOAD, Work.SHARED, Work.TMEM,
    ),
    _promise(
        "no tensor-core instruction",
        "dot dots mma wgmma hgmma umma tcgen gemm matmul",
        r"(^|\.)(dot|dot_scaled|warpgroup_mma|tcgen\d*_mma\w*|mma_v2|mma|gemm)$",
        Work.TENSOR,
    ),
    _promise(
        "no store",
        "store stores st write",
        r"(^(tl|gl|ttgl|language)\.store|\.store|\.async_store\w*|\.(async_)?copy_shared_to_global|"
        r"\.autovec_copy)$",
        Work.STORE, Work.COPY, Work.SHARED, Work.ATOMIC, Work.TMEM,
    ),
    _promise("no atomic", "atomic atomics", r"(^|\.)atomic_\w+$", Work.ATOMIC),
    WAIT,
)  # fmt: skip
_LANGUAGES = ("tl.", "gl.", "ttgl.", "language.", "ikp.")
_LOADS = _PROMISES[0]
_ISSUED = (Work.TENSOR, Work.COPY, Work.LOAD, Work.STORE, Work.ATOMIC)
"""Work that a compiler moves but does not add; it may add waits."""
_WORK = tuple(work for work in Work if work not in IDLE)
ASYNC_LOADS = ("UTMALDG", "LDGSTS")
_FROM_GLOBAL = re.compile(r"^(tl|gl|ttgl|language)\.load$")


class _Elsewhere(Protocol):
    """Returns the instructions outside of a range that it might have been expected to hold."""

    def __call__(
        self, kinds: Iterable[Work], *, own_lines: bool = False, as_often: bool = False
    ) -> tuple[InstructionGroup, ...]:
        """Return those of some kinds: of the range's own lines or, without lines, of the kernel.

        Args:
            kinds: what they are.
            own_lines: nothing where its lines aren't known or have none.
            as_often: those alone that are in as many loops as the range: others are an iteration
                that a pipeline has put before the loop, or behind it.
        """

    def strayed(self, written: re.Pattern[str]) -> tuple[InstructionGroup, ...]:
        """Return the asynchronous loads outside of the range that come from lines with no load.

        Args:
            written: the calls that load.
        """


def _kept(found: CodeRange, promise: _Promise, elsewhere: _Elsewhere) -> list[Discrepancy]:
    """Return how a range breaks a promise; nothing where it keeps it."""
    kinds = _kept_by(promise, found)
    if not found.holds(*kinds):
        broken = _broken(found, promise, elsewhere(kinds))
        return [replace(broken, lost="") if _has_none_of(found, promise) else broken]
    issued = [kind for kind in kinds if kind in _ISSUED]
    if left := elsewhere(issued, own_lines=True):
        return [_left_out(found, left, elsewhere(issued, own_lines=True, as_often=True))]
    if promise is _LOADS and _holds_fewer(found, kinds):
        return [*_strayed(found, elsewhere.strayed(promise.calls), kinds)]
    return []


def check(found: CodeRange, elsewhere: _Elsewhere) -> list[Discrepancy]:
    """Return a finding for each promise that a range breaks."""
    if found.kind != "range":
        return []
    warnings = [each for promise in _promised(found) for each in _kept(found, promise, elsewhere)]
    if not warnings and not found.holds(*_WORK):
        warnings += _empty(found, elsewhere(_WORK, own_lines=True))
    if found.source and found.source.is_of_token and not _promised_by_name(found):
        return [replace(each, lost="") for each in warnings]
    return warnings


def _has_none_of(found: CodeRange, promise: _Promise) -> bool:
    """Whether a range's lines are known to hold nothing that it was named after: none is lost.

    What a helper does, or an operator, they don't say.
    """
    calls = found.source.calls if found.source else frozenset()
    known = all(call.startswith(_LANGUAGES) for call in calls)
    promised = any(each.calls.search(call) for each in _PROMISES for call in calls)
    return known and promised and not any(promise.calls.search(call) for call in calls)


def _promised_by_name(found: CodeRange) -> bool:
    words = set(re.findall("[a-z]+", found.name.lower()))
    return any(words & promise.words for promise in _PROMISES)


def _promised(found: CodeRange) -> list[_Promise]:
    """Return the promises of a range; a wait that names what it waits for promises the wait."""
    words = set(re.findall("[a-z]+", found.name.lower()))
    if words & WAIT.words:
        return [WAIT]
    calls = found.source.calls if found.source else frozenset()
    return [
        promise
        for promise in _PROMISES
        if words & promise.words or any(promise.calls.search(call) for call in calls)
    ]


def _kept_by(promise: _Promise, found: CodeRange) -> tuple[Work, ...]:
    """Return the kinds of work that keep a promise.

    A load from shared memory does not keep the promise of one from global memory.
    """
    calls = found.source.calls if found.source else frozenset()
    if Work.LOAD in promise.kept_by and any(_FROM_GLOBAL.match(call) for call in calls):
        return tuple(w for w in promise.kept_by if w not in (Work.SHARED, Work.TMEM))
    return promise.kept_by


def _broken(
    found: CodeRange, promise: _Promise, elsewhere: tuple[InstructionGroup, ...]
) -> Discrepancy:
    text = f"{found.label} holds {promise.broken}, {_instead(found)}."
    if not elsewhere:
        text = f"{text} The kernel has none of that at all."
        return Discrepancy(found, text, lost=text)
    lost = "" if _awaits_copies(found, elsewhere) else f"{text} {_standing(elsewhere)}"
    return Discrepancy(found, f"{text} {_explanation(found, elsewhere)}", elsewhere, lost)


def _left_out(
    found: CodeRange,
    elsewhere: tuple[InstructionGroup, ...],
    repeated: tuple[InstructionGroup, ...],
) -> Discrepancy:
    """Say what part of a range's own lines is outside of it.

    Args:
        found: the range.
        elsewhere: all that is outside.
        repeated: what of that is no iteration that a pipeline has put before the loop.
    """
    lost = ""
    if repeated and not (_awaits_copies(found, repeated) and not found.holds(Work.COPY)):
        lost = f"{_part(found, repeated)} {_standing(repeated)}"
    text = f"{_part(found, elsewhere)} The others are elsewhere:"
    return Discrepancy(found, text, elsewhere, lost)


def _part(found: CodeRange, elsewhere: tuple[InstructionGroup, ...]) -> str:
    left = sum(len(group.instructions) for group in elsewhere)
    kinds = {group.work for group in elsewhere}
    inside = sum(copy.counts[work] for copy in found.copies for work in kinds)
    what = " and ".join(work.value for work in _ISSUED if work in kinds)
    return f"{found.label} holds {inside} of the {inside + left} {what} instructions of its lines."


def _holds_fewer(found: CodeRange, kinds: tuple[Work, ...]) -> bool:
    """Whether no copy of a range has as many loads as its lines call for."""
    written = found.source.written(_LOADS.calls) if found.source else 0
    return written > _most_held(found, kinds)


def _most_held(found: CodeRange, kinds: tuple[Work, ...]) -> int:
    return max(sum(copy.counts[work] for work in kinds) for copy in found.copies)


def _strayed(
    found: CodeRange, elsewhere: tuple[InstructionGroup, ...], kinds: tuple[Work, ...]
) -> list[Discrepancy]:
    """Say that a load of a range is elsewhere, under the line of what takes what it loads.

    Triton does that to a load whose result is transposed first.
    """
    if not elsewhere or found.source is None:
        return []
    held, written = _most_held(found, kinds), found.source.written(_LOADS.calls)
    text = f"{found.label} holds {held} of the {written} loads that its lines call for."
    said = "Others are elsewhere, under lines that load nothing"
    where = ", ".join(dict.fromkeys(f"{opcodes(g.instructions)} {g.place}" for g in elsewhere))
    return [Discrepancy(found, f"{text} {said}:", elsewhere, f"{text} {said}: {where}.")]


def _empty(found: CodeRange, elsewhere: tuple[InstructionGroup, ...]) -> list[Discrepancy]:
    """Return the finding on a range that holds nothing, or none of its lines' work.

    A range that holds only integer instructions is fine: they may be its work.
    """
    if elsewhere:
        text = f"{found.label} holds no work, {_instead(found)}."
        lost = f"{text} {_standing(elsewhere)}"
        return [Discrepancy(found, f"{text} {_explanation(found, elsewhere)}", elsewhere, lost)]
    if any(copy.instructions for copy in found.copies):
        return []
    text = f"{found.label} is empty: its clock reads are side by side."
    lost = "" if found.source and found.source.has_no_body else text
    return [Discrepancy(found, text, lost=lost)]


def _instead(found: CodeRange) -> str:
    """Return words for the instructions that a range does hold."""
    longest = max(found.copies, key=lambda copy: len(copy.instructions)).instructions
    work = [i for copy in found.copies for i in copy.instructions if _is_work(i)]
    if work:
        return f"but {opcodes(work)}"
    return f"only {opcodes(longest)}" if longest else "nothing at all"


def _is_work(instruction: Instruction) -> bool:
    return work_of(instruction) not in IDLE


def _standing(elsewhere: tuple[InstructionGroup, ...]) -> str:
    """Return words for the instructions that are elsewhere."""
    return f"Elsewhere are {opcodes([i for group in elsewhere for i in group.instructions])}."


def _awaits_copies(found: CodeRange, elsewhere: tuple[InstructionGroup, ...]) -> bool:
    """Whether a range of copies holds only the wait for them, because of a software pipeline."""
    waits = found.holds(Work.WAIT, Work.BARRIER)
    return waits and any(group.work is Work.COPY for group in elsewhere)


def _explanation(found: CodeRange, elsewhere: tuple[InstructionGroup, ...]) -> str:
    if _awaits_copies(found, elsewhere):
        return (
            "It shows the wait for copies that were issued earlier (a software pipeline); "
            "they are elsewhere:"
        )
    return "They are elsewhere:"
