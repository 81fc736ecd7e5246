"""What a range promises by its name and its lines, and whether the machine code keeps it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ikp.inspection.report import CodeRange, Finding, Group
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import IDLE, Work, opcodes, work_of


@dataclass(frozen=True, slots=True)
class _Promise:
    """A kind of work that a word in a range's name, or a call in its lines, lets one expect."""

    broken: str  # what a range holds that breaks it
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
_ISSUED = (Work.TENSOR, Work.COPY, Work.LOAD, Work.STORE, Work.ATOMIC)
"""Work that is one and the same wherever it stands; of waits, a compiler may add some."""
_WORK = tuple(work for work in Work if work not in IDLE)
_FROM_GLOBAL = re.compile(r"^(tl|gl|ttgl|language)\.load$")


class _Elsewhere(Protocol):
    """Says where instructions stand that a range might have been expected to hold."""

    def __call__(self, kinds: Iterable[Work], *, own_lines: bool = False) -> tuple[Group, ...]:
        """Return those of some kinds: of the range's own lines or, without lines, of the kernel.

        With ``own_lines``, nothing where its lines aren't known or have none.
        """


def check(found: CodeRange, elsewhere: _Elsewhere) -> list[Finding]:
    """Return what a range promises and does not hold."""
    if found.kind != "range":
        return []
    warnings = []
    for promise in _promised(found):
        kinds = _kept_by(promise, found)
        if not found.holds(*kinds):
            warnings.append(_broken(found, promise, elsewhere(kinds)))
        elif left := elsewhere([work for work in kinds if work in _ISSUED], own_lines=True):
            warnings.append(_left_out(found, left))
    if not warnings and not found.holds(*_WORK):
        warnings += _empty(found, elsewhere(_WORK, own_lines=True))
    return warnings


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
    """Return what keeps a promise. A load from global memory is not kept by one from shared."""
    calls = found.source.calls if found.source else frozenset()
    if Work.LOAD in promise.kept_by and any(_FROM_GLOBAL.match(call) for call in calls):
        return tuple(w for w in promise.kept_by if w not in (Work.SHARED, Work.TMEM))
    return promise.kept_by


def _broken(found: CodeRange, promise: _Promise, elsewhere: tuple[Group, ...]) -> Finding:
    text = f"{found.label} holds {promise.broken}, {_instead(found)}."
    if not elsewhere:
        text = f"{text} The kernel has none of that at all."
        return Finding(found, text, lost=text)
    lost = "" if _awaits_copies(found, elsewhere) else f"{text} {_standing(elsewhere)}"
    return Finding(found, f"{text} {_explanation(found, elsewhere)}", elsewhere, lost)


def _left_out(found: CodeRange, elsewhere: tuple[Group, ...]) -> Finding:
    """Say what part of a range's own lines stands outside of it."""
    left = sum(len(group.instructions) for group in elsewhere)
    kinds = {group.work for group in elsewhere}
    inside = sum(copy.counts[work] for copy in found.copies for work in kinds)
    what = " and ".join(work.value for work in _ISSUED if work in kinds)
    return Finding(
        found,
        f"{found.label} holds {inside} of the {inside + left} {what} instructions of its lines. "
        "The others stand elsewhere:",
        elsewhere,
    )


def _empty(found: CodeRange, elsewhere: tuple[Group, ...]) -> list[Finding]:
    """Say that a range holds nothing, or none of its lines' work. Integers may be the work."""
    if elsewhere:
        text = f"{found.label} holds no work, {_instead(found)}."
        lost = f"{text} {_standing(elsewhere)}"
        return [Finding(found, f"{text} {_explanation(found, elsewhere)}", elsewhere, lost)]
    if any(copy.instructions for copy in found.copies):
        return []
    text = f"{found.label} is empty: its clock reads stand side by side."
    return [Finding(found, text, lost=text)]


def _instead(found: CodeRange) -> str:
    """Say what a range does hold."""
    longest = max(found.copies, key=lambda copy: len(copy.instructions)).instructions
    work = [i for copy in found.copies for i in copy.instructions if _is_work(i)]
    if work:
        return f"but {opcodes(work)}"
    return f"only {opcodes(longest)}" if longest else "nothing at all"


def _is_work(instruction: Instruction) -> bool:
    return work_of(instruction) not in IDLE


def _standing(elsewhere: tuple[Group, ...]) -> str:
    """Say how many instructions stand elsewhere."""
    return f"Elsewhere stand {opcodes([i for group in elsewhere for i in group.instructions])}."


def _awaits_copies(found: CodeRange, elsewhere: tuple[Group, ...]) -> bool:
    """Whether it is about copies, and a software pipeline has left it the wait for them."""
    waits = found.holds(Work.WAIT, Work.BARRIER)
    return waits and any(group.work is Work.COPY for group in elsewhere)


def _explanation(found: CodeRange, elsewhere: tuple[Group, ...]) -> str:
    if _awaits_copies(found, elsewhere):
        return (
            "It shows the wait for copies that were issued earlier (a software pipeline); "
            "they stand elsewhere:"
        )
    return "They stand elsewhere:"
