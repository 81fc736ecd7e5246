"""All operators of a slice: each in processes of its own, as many as its faults make necessary."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from tools.fuzz_operators import outcomes
from tools.fuzz_operators.cases import Suite
from tools.fuzz_operators.counting import counted
from tools.fuzz_operators.examine import Examination
from tools.fuzz_operators.pool import NOT_FINISHED, Ended, Event, Pool
from tools.fuzz_operators.recorder import Records
from tools.fuzz_operators.summary import read

_TRIED = 8
"""Operators of which one must run plain, or the run ends: the GPU's time is dear."""


@dataclass(frozen=True, slots=True)
class Orders:
    """How a run goes."""

    details: Sequence[str]
    jobs: int = 1
    limit_s: float = 90
    restarts: int = 3  # of an operator, behind processes that did not survive a step
    minutes: float | None = None
    count: bool = True  # whether launches are also counted by CUPTI


@dataclass(slots=True)
class _Operator:
    """What is known of an operator so far."""

    name: str
    results: list[Event] = field(default_factory=list)
    traces: dict[str, dict[str, int]] = field(default_factory=dict)
    counted: dict[str, int] | None = None
    seconds: float = 0.0
    processes: int = 0

    def add(self, ended: Ended) -> None:
        """Add what a process found, where that is not known from an earlier one."""
        known = outcomes.steps(self.results)
        found = outcomes.results(ended)
        self.results += [each for each in found if (each["detail"], each["case"]) not in known]
        self.traces.update(outcomes.traces(ended))
        self.counted = self.counted or outcomes.counted(ended)
        self.seconds += round(ended.seconds, 2)
        self.processes += 1

    def skip(self) -> set[outcomes.Step]:
        """Return what another process need not do, or would not survive."""
        again = (outcomes.EQUAL, outcomes.VARIES)  # plain results are what records are held against
        return {
            (each["detail"], each["case"])
            for each in self.results
            if each["detail"] != outcomes.PLAIN or each["outcome"] not in again
        }

    def line(self) -> str:
        """Return the operator as a line of a results file."""
        made = {
            "operator": self.name,
            "seconds": round(self.seconds, 2),
            "processes": self.processes,
            "counted": self.counted,
            "traces": self.traces,
            "results": self.results,
        }
        return f"{json.dumps(made)}\n"


class Driver:
    """Runs operators of a suite in a pool of processes, and writes a line for each."""

    def __init__(self, suite: Suite, recorder: Callable[[], Records], orders: Orders) -> None:
        self._suite, self._recorder, self._orders = suite, recorder, orders
        self._operators: dict[str, _Operator] = {}
        self._pool = Pool(orders.jobs, orders.limit_s, orders.minutes)

    def run(self, names: Sequence[str], out: Path) -> None:
        """Run operators that are not in a results file yet, and add them to it."""
        known = {each["operator"] for each in read([out])}
        for name in names:
            if name not in known:
                self._submit(_Operator(name))
        gc.freeze()  # what is there now, processes share
        began, total = time.monotonic(), self._pool.waiting
        finished = 0
        with out.open("a", encoding="utf-8") as file:
            file.write("\n" * bool(out.stat().st_size))  # a kill may have cut off a line
            for ended in self._pool.results():
                finished += self._ended(ended, file)
                self._check(finished)
                seconds = time.monotonic() - began
                print(f"\r{finished} of {total} operators, {seconds:.0f} s ", end="", flush=True)
        print(f"\n{total - finished} operators did not end: the same command goes on with them.")

    def _check(self, finished: int) -> None:
        """End the run where nothing works at all.

        Raises:
            RuntimeError: none of the first operators runs, or none runs with records.
        """
        if finished != _TRIED:
            return
        results = [each for one in self._operators.values() for each in one.results]
        plain = [each for each in results if each["detail"] == outcomes.PLAIN]
        self._check_any(plain, outcomes.PLAIN_FAILS, "plain")
        recorded = [each for each in results if each["detail"] in self._orders.details]
        if recorded:
            self._check_any(recorded, outcomes.NOT_RUN, "with records")

    def _check_any(self, results: Sequence[Event], nothing: str, how: str) -> None:
        if all(each["outcome"] == nothing for each in results):
            what = next((str(each["what"]) for each in results), "no case ran")
            raise RuntimeError(f"none of the first {_TRIED} operators runs {how}: {what}")

    def _submit(self, operator: _Operator, *, again: bool = False) -> None:
        self._operators[operator.name] = operator
        work = partial(self._work, operator.name, operator.skip())
        self._pool.submit(operator.name, work, first=again)

    def _work(self, name: str, skip: set[outcomes.Step], send: Callable[[Event], None]) -> None:
        """Examine an operator: what a forked process does."""
        examination = Examination(send, self._suite.wait, skip)
        examination.plain(self._suite.cases(name))
        examination.recorded(self._recorder(), self._orders.details)
        if self._orders.count:
            examination.launches(counted)

    def _ended(self, ended: Ended, file: TextIO) -> bool:
        """Take what a process found; return whether its operator is finished."""
        operator = self._operators[ended.key]
        if ended.end == NOT_FINISHED:
            return False
        operator.add(ended)
        if not outcomes.survived(ended):
            if not ended.events:
                operator.results.append(_nothing(ended))
            missing = outcomes.missing(operator.results, self._orders.details)
            if outcomes.cut_in_plain(ended):
                missing.append((outcomes.PLAIN, "further cases"))
            if missing and operator.processes <= self._orders.restarts:
                self._submit(operator, again=True)
                return False
            operator.results += [_not_run(step, operator.processes, ended) for step in missing]
        file.write(operator.line())
        file.flush()
        return True


def _nothing(ended: Ended) -> Event:
    """Say that a process ended before its first step."""
    what = f"{ended.end}: {outcomes.last_words(ended.stderr)}"
    return {"detail": outcomes.PLAIN, "case": "", "outcome": outcomes.PLAIN_FAILS, "what": what}


def _not_run(step: outcomes.Step, processes: int, last: Ended) -> dict[str, Any]:
    words = f"{last.end}: {outcomes.last_words(last.stderr)}"
    what = f"{processes} processes did not survive other cases; the last one: {words}"
    detail, case = step
    return {"detail": detail, "case": case, "outcome": outcomes.NOT_RUN, "what": what}
