"""The outcomes of a case at a detail, and what a process's events make of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from tools.fuzz_operators.pool import DONE, TIME_LIMIT, Ended
from tools.fuzz_operators.recorder import RECORDED

PLAIN: Final = "plain"
"""Stands for a detail where nothing is recorded."""
COUNT: Final = "count"
"""Stands for a detail where launches are counted by another way than ikp's."""

EQUAL: Final = "equal"
VARIES: Final = "differs as plain runs do"
REFUSED: Final = "refused"
NONE: Final = "no kernel recorded"
PLAIN_FAILS: Final = "plain run fails"
NOT_COUNTED: Final = "launches not counted"
NOT_RUN: Final = "not run"
DIFFERS: Final = "DIFFERS"
ERROR: Final = "ERROR"
FAULT: Final = "FAULT"
CRASH: Final = "CRASH"
HANG: Final = "HANG"
TRACE: Final = "TRACE"
DEFECTS: Final = (DIFFERS, ERROR, FAULT, CRASH, HANG, TRACE)
"""What must never be."""
ALL: Final = (EQUAL, VARIES, REFUSED, NONE, PLAIN_FAILS, NOT_COUNTED, NOT_RUN, *DEFECTS)

COULD_NOT: Final = "could not be marked: "
"""How the reason of a refusal begins; other reasons are of choices, or of room."""
_LAST_WORDS: Final = ("Fatal Python error", "Current thread", "Traceback (most recent call last)")
_STDERR: Final = 1_500
"""Characters."""

Event = dict[str, Any]
Step = tuple[str, str]
"""A detail and a case."""


def results(ended: Ended) -> Iterator[Event]:
    """Yield the outcomes in a process's events, and that of the step which it did not survive."""
    last: list[str] | None = None
    for event in ended.events:
        last = event.get("begin")
        if "outcome" in event:
            yield {**event, "outcome": _outcome(event)}
    if last is not None:
        what = f"{ended.end}: {last_words(ended.stderr)}"
        outcome = {PLAIN: PLAIN_FAILS, COUNT: NOT_COUNTED}.get(last[0], _end(ended))
        yield {"detail": last[0], "case": last[1], "outcome": outcome, "what": what}


def last_words(stderr: str) -> str:
    """Return what Python says of its end, or else the end of what a process wrote."""
    found = max(stderr.rfind(each) for each in _LAST_WORDS)
    return (stderr[-_STDERR:] if found < 0 else stderr[found:])[:_STDERR].strip()


def _end(ended: Ended) -> str:
    return HANG if ended.end == TIME_LIMIT else CRASH


def _outcome(event: Event) -> str:
    """Say of an equal result whether any kernel was recorded."""
    outcome = str(event["outcome"])
    if outcome != EQUAL or event["detail"] == PLAIN:
        return outcome
    reasons = Counter[str]()
    for each in event["kernels"].values():
        reasons.update(each)
    if reasons[RECORDED]:
        return EQUAL
    return REFUSED if any(each.startswith(COULD_NOT) for each in reasons) else NONE


def steps(found: Iterable[Event]) -> set[Step]:
    """Return the steps that have an outcome."""
    return {(each["detail"], each["case"]) for each in found}


def missing(found: Collection[Event], details: Sequence[str]) -> list[Step]:
    """Return the steps that a process did not come to, as far as its plain runs tell."""
    done = steps(found)
    cases = [
        each["case"]
        for each in found
        if each["detail"] == PLAIN and each["outcome"] in (EQUAL, VARIES)
    ]
    return [step for detail in details for case in cases if (step := (detail, case)) not in done]


def cut_in_plain(ended: Ended) -> bool:
    """Return whether a process ended while it ran plain: it may have more cases."""
    last = ended.events[-1] if ended.events else {}
    return not survived(ended) and last.get("begin", [""])[0] == PLAIN


def survived(ended: Ended) -> bool:
    """Return whether a process came to its end."""
    return ended.end == DONE


def counted(ended: Ended) -> dict[str, int] | None:
    """Return what a process launched, counted by another way; None where it was not."""
    return next((each["launches"] for each in ended.events if "launches" in each), None)


def traces(ended: Ended) -> dict[str, dict[str, int]]:
    """Return what was decoded, by detail."""
    return {each["detail"]: each["trace"] for each in ended.events if each.get("trace")}
