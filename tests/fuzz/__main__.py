"""``python -m tests.fuzz``: mutated segments, files and machine code, as many as wanted, counted.

Each attempt has a random generator of its own, made from the seed and its number: what fails is
repeated with ``--only``.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from random import Random

from tests.fuzz import consumers, files, machine_code, segments
from tests.fuzz.limits import TooLongError

KINDS: dict[str, Callable[[Random], str]] = {
    "segments": segments.attempt,
    "files": files.attempt,
    "consumers": consumers.attempt,
    "machine code": machine_code.attempt,
}
FAULTS = ("silent", "error")
AT_ONCE = 1_000
"""Attempts between two lines of the report."""


def run(kind: str, seed: int, numbers: range) -> Counter[str]:
    """Make attempts; return how often each outcome occurred. Faults are printed as they occur."""
    return Counter(one(kind, seed, number) for number in numbers)


def one(kind: str, seed: int, number: int) -> str:
    """Make one attempt; what the code under test should not have raised is an ``error``."""
    try:
        outcome = KINDS[kind](Random(f"{kind} {seed} {number}"))
    except (Exception, TooLongError):  # noqa: BLE001 - whatever it is, it is what is looked for
        outcome = "error"
        traceback.print_exc()
    if outcome in FAULTS:
        print(f"{outcome}: --kind {kind!r} --seed {seed} --only {number}", file=sys.stderr)
    return outcome


def main() -> int:
    """Run what the command line asks for; 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="Default: all.")
    parser.add_argument("--count", type=int, default=500_000, help="Of each kind.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="Repeat this one attempt.")
    given = parser.parse_args()
    first, count = (0, given.count) if given.only is None else (given.only, 1)
    found = {kind: Counter[str]() for kind in given.kind or KINDS}
    began = time.perf_counter()
    for low in range(first, first + count, AT_ONCE):
        numbers = range(low, min(low + AT_ONCE, first + count))
        for kind, outcomes in found.items():
            outcomes.update(run(kind, given.seed, numbers))
            _report(kind, outcomes, time.perf_counter() - began)
    return any(outcomes[fault] for outcomes in found.values() for fault in FAULTS)


def _report(kind: str, found: Counter[str], seconds: float) -> None:
    outcomes = ", ".join(f"{times:,} {outcome}" for outcome, times in found.most_common())
    print(f"{found.total():,} {kind} in {seconds:.0f} s: {outcomes}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
