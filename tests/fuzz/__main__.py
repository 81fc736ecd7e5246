"""``python -m tests.fuzz``: mutated segments and trace files, as many as wanted, counted.

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

from tests.fuzz import files, segments

KINDS: dict[str, Callable[[Random], str]] = {"segments": segments.attempt, "files": files.attempt}
FAULTS = ("silent", "error")
SHOWN = 10


def run(kind: str, seed: int, numbers: range) -> Counter[str]:
    """Make attempts; return how often each outcome occurred. Faults are printed as they occur."""
    found: Counter[str] = Counter()
    for number in numbers:
        outcome = one(kind, seed, number, show=sum(found[fault] for fault in FAULTS) < SHOWN)
        found[outcome] += 1
    return found


def one(kind: str, seed: int, number: int, *, show: bool = True) -> str:
    """Make one attempt; what the code under test should not have raised is an ``error``."""
    try:
        outcome = KINDS[kind](Random(f"{kind} {seed} {number}"))
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        outcome = "error"
        if show:
            traceback.print_exc()
    if show and outcome in FAULTS:
        print(f"{outcome}: --kind {kind} --seed {seed} --only {number}", file=sys.stderr)
    return outcome


def main() -> int:
    """Run what the command line asks for; 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="Default: both.")
    parser.add_argument("--count", type=int, default=500_000, help="Of each kind.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="Repeat this one attempt.")
    given = parser.parse_args()
    numbers = range(given.count) if given.only is None else range(given.only, given.only + 1)
    faults = 0
    for kind in given.kind or KINDS:
        began = time.perf_counter()
        found = run(kind, given.seed, numbers)
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in found.most_common())
        seconds = time.perf_counter() - began
        print(f"{len(numbers):,} {kind}, seed {given.seed}, {seconds:.0f} s: {outcomes}")
        faults += sum(found[fault] for fault in FAULTS)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
