"""Random programs on the model of the driver, many; and faults that they find.

``python -m tests.backends.driver.model --count 1000000`` runs so many programs, with ``--mutants``
after all faults. It fails on a launch of other code than without the library, and on a fault that
is not found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.backends.driver.model.building import build
from tests.backends.driver.model.mutants import MUTANTS, survives


def main() -> int:
    """Run what was asked for; return 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="programs")
    parser.add_argument("--first", type=int, default=0, help="the first one's number")
    parser.add_argument("--mutants", action="store_true", help="look for each fault first")
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, each in enumerate(MUTANTS if asked.mutants else ()):
            alive = survives(each, folder / str(number))
            wrong += alive
            print(f"{'SURVIVES' if alive else 'found'}: {each.name}", flush=True)
        for kind, old in (("", False), (", on a driver before CUDA 12", True)):
            made, begun = build(folder / f"made{old}", old=old), time.perf_counter()
            said = made.run(asked.first, asked.count, timeout=36_000)
            wrong += bool(said)
            rate = asked.count / (time.perf_counter() - begun)
            print(f"{asked.count:,} programs{kind}: {said or f'all right, {rate:,.0f} a second'}")
        made = build(folder / "beside")
        for how in ("threads", "forks"):
            said = made.run(asked.first, 2000 if how == "threads" else 1 << 20, how)
            wrong += bool(said)
            print(f"{how}: {said or 'all right'}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
