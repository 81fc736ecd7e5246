"""One operator, in a process of its own: plain twice, then recorded at each detail, compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.fuzz_operators.cases import Case
from tools.fuzz_operators.outcomes import (
    COUNT,
    DIFFERS,
    EQUAL,
    ERROR,
    FAULT,
    PLAIN,
    PLAIN_FAILS,
    TRACE,
    VARIES,
)
from tools.fuzz_operators.outputs import Output, difference, kept
from tools.fuzz_operators.recorder import Kernels, Records

_AGAIN = 4
"""How often more a case runs plain, where a recorded run differs: atomics give other sums."""
_LONGEST = 600
"""Characters of an error that are kept."""

Skip = Collection[tuple[str, str]]
"""Details and cases that need not run, or that an earlier process did not survive."""


class LostError(Exception):
    """The GPU can't be used in this process any more."""


@dataclass(slots=True)
class _Known:
    """A case with what it computes without records."""

    case: Case
    plain: list[Output]
    varies: str


@dataclass(slots=True)
class Examination:
    """Runs an operator's cases; every step is sent before it begins, so that a crash has a place.

    Args:
        send: takes the events.
        wait: waits for the GPU, and raises what went wrong there.
        skip: what is left out.
    """

    send: Callable[[dict[str, Any]], None]
    wait: Callable[[], None]
    skip: Skip = ()
    _known: list[_Known] = field(default_factory=list)

    def plain(self, cases: Iterable[Case]) -> None:
        """Run each case twice, and remember what it computed."""
        for case in cases:
            if (PLAIN, case.name) in self.skip:
                continue
            self.send({"begin": [PLAIN, case.name]})
            began = time.perf_counter()
            try:
                first, second = self._computed(case), self._computed(case)
            except LostError:
                raise
            except Exception as error:  # noqa: BLE001 - an operator may refuse what it is given
                self._report(PLAIN, case, PLAIN_FAILS, _text(error), began, {})
                continue
            differs = difference(first, second)
            self._report(PLAIN, case, VARIES if differs else EQUAL, differs, began, {})
            self._known.append(_Known(case, first, differs or case.varies))

    def recorded(self, recorder: Records, details: Sequence[str]) -> None:
        """Run each case with records at each detail."""
        for detail in details:
            known = [each for each in self._known if (detail, each.case.name) not in self.skip]
            if not known:
                continue
            recorder.begin(detail)
            for each in known:
                self._recorded(recorder, detail, each)
            self._trace(recorder, detail)

    def launches(self, count: Callable[[Callable[[], None]], dict[str, int]]) -> None:
        """Count what all cases launch, by another way than ikp's."""
        self.send({"begin": [COUNT, ""]})
        inputs = [each.case.make() for each in self._known]
        self._wait()

        def everything() -> None:
            for each, made in zip(self._known, inputs, strict=True):
                each.case.run(made)
            self._wait()

        self.send({"launches": count(everything)})

    def _recorded(self, recorder: Records, detail: str, known: _Known) -> None:
        case, kernels = known.case, Kernels()
        self.send({"begin": [detail, case.name]})
        began = time.perf_counter()
        try:
            inputs = case.make()
            with recorder.recording(kernels):
                made = case.run(inputs)
                self._wait()
            found = difference(known.plain, kept(made))
        except LostError as error:
            self._report(detail, case, FAULT, str(error), began, kernels)
            raise
        except Exception as error:  # noqa: BLE001 - the plain run had none
            self._report(detail, case, ERROR, _text(error), began, kernels)
            self._wait()
            return
        outcome, what = EQUAL, ""
        if found:
            outcome, what = self._differs(known, found)
        self._report(detail, case, outcome, what, began, kernels)

    def _differs(self, known: _Known, found: str) -> tuple[str, str]:
        """Say whether a plain run differs from another, too."""
        if not known.varies:
            again = (difference(known.plain, self._computed(known.case)) for _ in range(_AGAIN))
            known.varies = next(filter(None, again), "")
        if known.varies:
            return VARIES, f"{found}; two plain runs: {known.varies}"
        return DIFFERS, found

    def _trace(self, recorder: Records, detail: str) -> None:
        self.send({"begin": [detail, ""]})
        try:
            self.send({"detail": detail, "trace": recorder.trace()})
        except Exception as error:  # noqa: BLE001 - a trace that can't be decoded is a finding
            lost = {"detail": detail, "case": "", "outcome": TRACE, "what": _text(error)}
            self.send({**lost, "kernels": {}})
            self._wait()

    def _computed(self, case: Case) -> list[Output]:
        """Run a case as nobody records it."""
        made = case.run(case.make())
        self._wait()
        return kept(made)

    def _wait(self) -> None:
        try:
            self.wait()
        except Exception as error:
            raise LostError(_text(error)) from error

    def _report(
        self, detail: str, case: Case, outcome: str, what: str, began: float, kernels: Kernels
    ) -> None:
        seconds = round(time.perf_counter() - began, 3)
        event = {"detail": detail, "case": case.name, "outcome": outcome, "what": what}
        self.send({**event, "kernels": kernels, "seconds": seconds})


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST]
