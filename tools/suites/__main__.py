"""Run public packages' own tests under ``ikp run``, and hold them against plain Python.

    python -m tools.suites --sources FOLDER --out FOLDER SUITE ...

Each suite runs three times: plain, recorded, plain. In what the plain runs agree, the recorded one
has to agree, too. Nothing is downloaded: SOURCES holds the repositories that the catalogue names,
each at its tag, and PYTHON's environment the packages, pytest and ikp.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tools.suites.catalogue import SUITES
from tools.suites.comparing import Difference, compare
from tools.suites.reading import Run
from tools.suites.running import run
from tools.suites.suite import Suite

RUNS = ("plain", "recorded", "again")
SHOWN = 5
_VERSIONS = """
import json, sys
from importlib.metadata import distributions
found = {each.name.lower().replace("_", "-"): each.version for each in distributions()}
print(json.dumps({name: found.get(name, "absent") for name in sys.argv[1:]}))
"""


def tried(
    suites: list[Suite], options: argparse.Namespace
) -> Iterator[tuple[Suite, dict[str, Run]]]:
    """Run each suite three times, ``--jobs`` runs at once, and yield its runs."""

    def begin(suite: Suite, name: str) -> Run:
        recorded = name == "recorded"
        done = run(suite, options.python, options.sources, options.minutes, recorded=recorded)
        counts = dict(Counter(done.outcomes.values()))
        print(f"{suite.name} {name}: {done.code} {counts}, {done.seconds:.0f} s", flush=True)
        return done

    with ThreadPoolExecutor(options.jobs) as pool:
        begun = [(each, [pool.submit(begin, each, name) for name in RUNS]) for each in suites]
        for suite, runs in begun:
            yield suite, {name: each.result() for name, each in zip(RUNS, runs, strict=True)}


def keep(suite: Suite, runs: dict[str, Run], options: argparse.Namespace) -> Difference:
    """Write what a suite's runs left into a file, and print what differs."""
    difference = compare(*(runs[name] for name in RUNS))
    found = asdict(difference)
    result = {
        "suite": asdict(suite),
        "date": datetime.date.today().isoformat(),  # noqa: DTZ011 - the reader's own
        "versions": versions(options.python, suite.packages),
        "runs": {name: each.facts() for name, each in runs.items()},
        "difference": found,
    }
    path = options.out / f"{suite.name}.json"
    path.write_text(json.dumps(result, indent=1), encoding="utf-8")
    for kind, lines in found.items():
        for each in lines[:SHOWN]:
            print(f"{suite.name}: {kind}: {each}")
        if len(lines) > SHOWN:
            print(f"{suite.name}: {kind}: and {len(lines) - SHOWN} more in {path}")
    return difference


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions that an environment has of packages."""
    ran = subprocess.run(
        [python, "-c", _VERSIONS, *packages], check=True, capture_output=True, text=True
    )
    found: dict[str, str] = json.loads(ran.stdout)
    return found


def main() -> int:
    """Run the suites; return 1 where a recorded run differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="+", choices=[each.name for each in SUITES])
    parser.add_argument("--sources", type=Path, required=True, help="where the repositories lie")
    parser.add_argument("--out", type=Path, required=True, help="a folder for SUITE.json")
    parser.add_argument("--python", default=sys.executable, help="of the packages' environment")
    parser.add_argument("--minutes", type=float, default=10, help="for one run of a suite")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in SUITES if each.name in options.suites]
    differing = [suite for suite, runs in tried(chosen, options) if keep(suite, runs, options)]
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
